// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"encoding/json"
	"fmt"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"

	"overdue/internal/escape"
)

// An Operation is one of a JSON Patch (RFC 6902). It adds a value, or replaces the one that there is.
type Operation struct {
	Op    string      `json:"op"`
	Path  string      `json:"path"`
	Value *yaml.RNode `json:"value"`
}

// Pod returns the changes that give a pod the sidecar while it is being created, or the reason why it
// gets none. The pod is JSON, as an API server sends it. Annotations of the pod take precedence over o.
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
