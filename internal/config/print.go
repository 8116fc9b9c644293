// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Redacted is the settings in force and where each that is not a default came from.
func (c *Config) Redacted() map[string]any {
	return map[string]any{"settings": redact(c.raw, ""), "origin": c.origin}
}

// YAML writes the settings in the order of the table, with the origin of each as a comment.
func (c *Config) YAML(given bool) ([]byte, error) {
	root := printer{c.origin, given}.section(c.raw, "", "")
	if len(root.Content) == 0 {
		return []byte("# Nothing is set; every setting has its default.\n"), nil
	}
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := errors.Join(e.Encode(root), e.Close()); err != nil {
		return nil, fmt.Errorf("write the settings: %w", err)
	}
	return b.Bytes(), nil
}

// A printer makes YAML of settings, with their origins.
type printer struct {
	origin    map[string]string
	givenOnly bool
}

// section is a mapping. path names it in the table, shown in the configuration: they differ by the index of a list's
// element. Both end in a dot unless they are empty.
func (p printer) section(values map[string]any, path, shown string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, key := range children(path) {
		v, there := values[key]
		if !there || p.givenOnly && !p.givenBelow(shown+key) {
			continue
		}
		name, came := scalarNode(key), p.came(shown+key)
		var node *yaml.Node
		switch v := v.(type) {
		case map[string]any:
			if s := byPath[path+key]; s != nil { // a mapping of the user's own
				node, name.LineComment = scalarNode(redact(v, path+key)), came
			} else if node = p.section(v, path+key+".", shown+key+"."); len(node.Content) == 0 {
				continue
			}
		case []any:
			if node = p.sequence(v, path+key, shown+key); len(node.Content) == 0 {
				node.Style, node.LineComment = yaml.FlowStyle, came
			} else {
				name.LineComment = came
			}
		default:
			node = scalarNode(redact(v, path+key))
			node.LineComment = came
		}
		n.Content = append(n.Content, name, node)
	}
	return n
}

func (p printer) sequence(list []any, path, shown string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode}
	for i, element := range list {
		if m, ok := element.(map[string]any); ok {
			n.Content = append(n.Content, p.section(m, path+"[].", fmt.Sprintf("%s[%d].", shown, i)))
		}
	}
	return n
}

// givenBelow reports whether somebody has set the key, or one below it.
func (p printer) givenBelow(key string) bool {
	for k := range p.origin {
		if rest, ok := strings.CutPrefix(k, key); ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return true
		}
	}
	return false
}

// came is where a value came from, as a comment.
func (p printer) came(key string) string {
	if place := p.origin[key]; place != "" {
		return "# " + place
	}
	return "# default"
}

// scalarNode is v as YAML: a single value, or what Go knows how to write.
func scalarNode(v any) *yaml.Node {
	if d, ok := v.(time.Duration); ok {
		v = d.String()
	}
	if v == "" {
		// Not every kind of value may be written as an empty one; a key without a value is one that is not given.
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null"}
	}
	n := &yaml.Node{}
	if err := n.Encode(v); err != nil {
		return &yaml.Node{Kind: yaml.ScalarNode, Value: "(cannot be shown)"}
	}
	if n.Kind == yaml.SequenceNode { // names
		n.Style = yaml.FlowStyle
	}
	return n
}
