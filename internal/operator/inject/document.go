// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"
	kubeyaml "sigs.k8s.io/yaml"

	"overdue/internal/escape"
)

// A document is one object of a manifest, or several in a List.
type document struct {
	text []byte          // as it stands there, with the line that begins it
	raw  json.RawMessage // what kubectl reads in it
}

// separator begins a document.
const separator = "---\n"

var (
	errTemplate  = errors.New("this is a template; render it first, as with `helm template`")
	errPatch     = errors.New("this is a patch; render it first, as with `kubectl kustomize`")
	errAmbiguous = errors.New("kubectl and other readers read it in two ways; write out what aliases and merge keys name")
)

var (
	// templateValue is what no object has in these fields.
	templateValue = regexp.MustCompile(`"(name|namespace|image|replicas)":"[^"]*\{\{`)
	// patchKey is a directive of a strategic merge patch.
	patchKey = regexp.MustCompile(`"\$(patch|retainKeys|setElementOrder/[^"]*|deleteFromPrimitiveList/[^"]*)":`)
)

// checkRendered reports what is left of a template or a patch in an object.
func checkRendered(raw json.RawMessage) error {
	switch {
	case templateValue.Match(raw):
		return errTemplate
	case patchKey.Match(raw):
		return errPatch
	}
	return nil
}

// splitManifest splits a manifest at the lines that begin a document, which stay with what follows.
func splitManifest(in []byte) (chunks [][]byte) {
	start, end := 0, 0
	for line := range bytes.Lines(in) {
		if end > start && bytes.HasPrefix(line, []byte("---")) && (len(line) == 3 || bytes.ContainsAny(line[3:4], " \t\n")) {
			chunks, start = append(chunks, splitJSON(in[start:end])...), end
		}
		end += len(line)
	}
	return append(chunks, splitJSON(in[start:])...)
}

// splitJSON splits values of JSON, which may stand one behind the other without a line between them.
// They get that line, and no escapes that YAML does not know. Anything else stays as it is.
func splitJSON(chunk []byte) (values [][]byte) {
	_, body := cutMarker(chunk)
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	for d.More() {
		var object map[string]any
		text := bytes.NewBufferString(separator)
		if err := d.Decode(&object); err != nil || escape.WriteJSON(text, object) != nil {
			return [][]byte{chunk} // YAML
		}
		values = append(values, text.Bytes())
	}
	if _, err := kubeyaml.YAMLToJSON(chunk); len(values) > 1 || err != nil && len(values) == 1 {
		return values
	}
	return [][]byte{chunk}
}

// cutMarker cuts the line that begins a document.
func cutMarker(chunk []byte) (marker string, body []byte) {
	if !bytes.HasPrefix(chunk, []byte("---")) {
		return "", chunk
	}
	line, body, _ := bytes.Cut(chunk, []byte("\n"))
	if rest := bytes.TrimSpace(line[3:]); len(rest) == 0 || rest[0] == '#' {
		return string(line) + "\n", body
	}
	return separator, chunk[3:] // the document begins in that line
}

// readDocument reads a document as kubectl does: a boolean may be spelt yes or on, and what aliases and
// merge keys name stands there.
func readDocument(chunk []byte) (document, error) {
	raw, err := kubeyaml.YAMLToJSON(chunk)
	for d := yaml.NewDecoder(bytes.NewReader(chunk)); err == nil; {
		err = d.Decode(new(yaml.Node)) // to the end: kubectl does not see what follows the first document
	}
	switch {
	case errors.Is(err, io.EOF):
		return document{chunk, raw}, nil
	case bytes.Contains(chunk, []byte("{{")):
		return document{}, fmt.Errorf("%w (%w)", errTemplate, err)
	}
	return document{}, errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
}

// nodes are a document with its comments and its order. Nodes that aliases name are written out, or
// a change would reach every place that has the alias.
func (d document) nodes() (*yaml.RNode, error) {
	_, body := cutMarker(d.text)
	if json.Valid(body) {
		var err error
		if body, err = kubeyaml.JSONToYAML(body); err != nil { // braces would have all of the sidecar in one line
			return nil, err
		}
	}
	root, err := yaml.Parse(string(body))
	if err != nil {
		return nil, err
	}
	if err := root.DeAnchor(); err != nil {
		return nil, err
	}
	plain, err := d.encode(root)
	if err == nil && !isSame(plain.raw, d.raw) {
		err = errAmbiguous
	}
	return root, err
}

// encode writes d with other nodes. It refuses a key that stands twice, of which kubectl takes one.
func (d document) encode(root *yaml.RNode) (document, error) {
	marker, body := cutMarker(d.text)
	out := bytes.NewBufferString(marker)
	e := yaml.NewEncoderWithOptions(out, &yaml.EncoderOptions{SeqIndent: yaml.SequenceIndentStyle(yaml.DeriveSeqIndentStyle(string(body)))})
	if err := errors.Join(e.Encode(root.Document()), e.Close()); err != nil {
		return document{}, err
	}
	raw, err := kubeyaml.YAMLToJSONStrict(out.Bytes())
	return document{out.Bytes(), raw}, err
}

// isSame reports whether two JSON values mean the same.
func isSame(a, b []byte) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// field returns a value below an object; nil: there is none.
func field(raw json.RawMessage, path ...string) json.RawMessage {
	for _, key := range path {
		var fields map[string]json.RawMessage
		if json.Unmarshal(raw, &fields) != nil {
			return nil
		}
		raw = fields[key]
	}
	return raw
}

// text returns a string below an object; "": there is none.
func text(raw json.RawMessage, path ...string) (s string) {
	if json.Unmarshal(field(raw, path...), &s) != nil {
		return ""
	}
	return s
}

// An Operation is one of a JSON Patch (RFC 6902). It adds a value, or replaces the one that there
// is.
type Operation struct {
	Op    string      `json:"op"`
	Path  string      `json:"path"`
	Value *yaml.RNode `json:"value"`
}

// Pod returns the changes that give a pod the sidecar while it is being created, or the reason why
// it gets none. The pod is JSON, as an API server sends it. Annotations of the pod take precedence
// over o.
//
// The file that Manifest puts into a ConfigMap stands in an annotation here, which the sidecar
// reads through a volume. A pod can be changed at its admission, and nothing can be made beside it.
func Pod(in json.RawMessage, o Options) (changes []Operation, skipped string, err error) {
	node, err := yaml.Parse(string(escape.JSON(in))) // escaped: JSON may have characters that YAML may not
	if err != nil {
		return nil, "", fmt.Errorf("the pod cannot be read: %w", err)
	}
	w, err := readWorkload("Pod", node, in, o)
	if err != nil {
		return nil, "", err
	}
	w.admitted = true
	if reason := w.unwanted(); reason != "" {
		return nil, reason, nil
	}
	s, err := w.add()
	if err == nil {
		err = node.PipeE(yaml.SetAnnotation(annotateConfig, s.configFile))
	}
	if err != nil {
		return nil, "", err
	}
	for _, path := range []string{"metadata", "spec/initContainers", "spec/volumes"} {
		value, err := node.Pipe(yaml.Lookup(strings.Split(path, "/")...))
		if err != nil {
			return nil, "", err
		}
		changes = append(changes, Operation{
			Op:    "add",
			Path:  "/" + path,
			Value: value,
		})
	}
	return changes, "", nil
}
