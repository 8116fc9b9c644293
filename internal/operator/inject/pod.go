// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// An Operation is one of a JSON Patch (RFC 6902).
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Pod returns the changes that give a pod the sidecar while it is being created, or the reason why it
// gets none. The pod is JSON, as an API server sends it. Annotations of the pod take precedence over o.
//
// What Manifest puts into a ConfigMap stands in an annotation here, which the sidecar reads through a
// volume: a pod can be changed at its admission, and nothing can be made beside it.
func Pod(in []byte, o Options) (changes []Operation, skipped string, err error) {
	before, err := decodeJSON(in)
	if err != nil {
		return nil, "", fmt.Errorf("the pod is not JSON: %w", err)
	}
	root, err := nodeOfJSON(before)
	if err != nil {
		return nil, "", err
	}
	if root.Kind != yaml.MappingNode || get(root, "spec") == nil {
		return nil, "", errors.New("the pod has no spec")
	}
	w := workload{kind: "Pod", root: root, pod: root, o: o, admitted: true}
	if reason := w.unwanted(); reason != "" {
		return nil, reason, nil
	}
	if _, err := w.add(); err != nil {
		return nil, "", err
	}
	after, err := jsonOfNode(root)
	if err != nil {
		return nil, "", err
	}
	return additions(nil, "", before, after), "", nil
}

// mirrorAnnotation marks a pod that a kubelet runs from a file. Its entry in the API is a copy, which
// nobody may change (kubernetes.io/docs/reference/labels-annotations-taints).
const mirrorAnnotation = "kubernetes.io/config.mirror"

func (w *workload) unwantedAtAdmission() string {
	if w.annotation(mirrorAnnotation) != "" {
		return "a kubelet runs it from a file"
	}
	if w.annotation(annotateInjected) != "" {
		return "it has a sidecar already"
	}
	for _, list := range []string{"initContainers", "containers"} {
		if named(get(get(w.pod, "spec"), list), containerName) >= 0 {
			return fmt.Sprintf("it has a container %q already", containerName)
		}
	}
	return ""
}

func decodeJSON(in []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(in))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more follows it")
	}
	return v, nil
}

// nodeOfJSON returns the YAML of a JSON value. A YAML parser would refuse characters that JSON may
// have.
func nodeOfJSON(v any) (*yaml.Node, error) {
	switch v := v.(type) {
	case map[string]any:
		m := &yaml.Node{Kind: yaml.MappingNode}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			value, err := nodeOfJSON(v[key])
			if err != nil {
				return nil, err
			}
			m.Content = append(m.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}, value)
		}
		return m, nil
	case []any:
		list := &yaml.Node{Kind: yaml.SequenceNode}
		for _, item := range v {
			n, err := nodeOfJSON(item)
			if err != nil {
				return nil, err
			}
			list.Content = append(list.Content, n)
		}
		return list, nil
	case string:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: v}, nil
	case json.Number:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: v.String()}, nil
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(v)}, nil
	case nil:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}, nil
	}
	return nil, fmt.Errorf("%T is no value of JSON", v)
}

// jsonOfNode is the reverse of nodeOfJSON.
func jsonOfNode(n *yaml.Node) (any, error) {
	switch n.Kind {
	case yaml.MappingNode:
		m := make(map[string]any, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			value, err := jsonOfNode(n.Content[i+1])
			if err != nil {
				return nil, err
			}
			m[n.Content[i].Value] = value
		}
		return m, nil
	case yaml.SequenceNode:
		list := make([]any, 0, len(n.Content))
		for _, item := range n.Content {
			v, err := jsonOfNode(item)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	case yaml.ScalarNode:
		switch n.ShortTag() {
		case "!!str":
			return n.Value, nil
		case "!!int", "!!float":
			return json.Number(n.Value), nil
		case "!!bool":
			return n.Value == "true", nil
		case "!!null":
			return nil, nil
		}
	}
	return nil, fmt.Errorf("a node of kind %d with tag %s has no JSON", n.Kind, n.Tag)
}

var pointerEscape = strings.NewReplacer("~", "~0", "/", "~1") // RFC 6901

// additions appends the operations that make after of before, to which something was added.
func additions(all []Operation, path string, before, after any) []Operation {
	switch b := before.(type) {
	case map[string]any:
		a, ok := after.(map[string]any)
		if !ok {
			break
		}
		for _, key := range slices.Sorted(maps.Keys(a)) {
			at := path + "/" + pointerEscape.Replace(key)
			if was := b[key]; was != nil {
				all = additions(all, at, was, a[key])
			} else if a[key] != nil {
				all = append(all, Operation{"add", at, a[key]})
			}
		}
		return all
	case []any:
		a, ok := after.([]any)
		if !ok || len(a) < len(b) {
			break
		}
		at := 0
		for at < len(b) && reflect.DeepEqual(b[at], a[at]) {
			at++
		}
		more := len(a) - len(b)
		if !reflect.DeepEqual(b[at:], a[at+more:]) {
			break
		}
		for i := range more {
			all = append(all, Operation{"add", path + "/" + strconv.Itoa(at+i), a[at+i]})
		}
		return all
	}
	if !reflect.DeepEqual(before, after) {
		all = append(all, Operation{"replace", path, after})
	}
	return all
}
