// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"slices"

	"go.yaml.in/yaml/v3"
)

// get returns the value of a key of a mapping; nil: there is none, or it is null.
func get(m *yaml.Node, key string) *yaml.Node {
	if m == nil || m.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value != key {
			continue
		}
		v := m.Content[i+1]
		if v.Kind == yaml.AliasNode {
			v = v.Alias
		}
		if v.Tag == "!!null" {
			return nil
		}
		return v
	}
	return nil
}

// text returns a scalar below a mapping; "": there is none.
func text(m *yaml.Node, path ...string) string {
	for _, key := range path {
		m = get(m, key)
	}
	if m == nil || m.Kind != yaml.ScalarNode {
		return ""
	}
	return m.Value
}

// set sets a key of a mapping, which keeps its place if it is there.
func set(m *yaml.Node, key string, value *yaml.Node) {
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == key {
			m.Content[i+1] = value
			return
		}
	}
	m.Content = append(m.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}, value)
}

// remove removes a key of a mapping.
func remove(m *yaml.Node, key string) {
	for i := 0; m != nil && i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == key {
			m.Content = slices.Delete(m.Content, i, i+2)
			return
		}
	}
}

// ensure returns the value of a key of a mapping, which it makes if there is none.
func ensure(m *yaml.Node, key string, kind yaml.Kind) (value *yaml.Node, made bool) {
	if v := get(m, key); v != nil {
		return v, false
	}
	v := &yaml.Node{Kind: kind}
	set(m, key, v)
	return v, true
}

// named returns the place of the item with a name in a list; -1: there is none.
func named(list *yaml.Node, name string) int {
	if list == nil {
		return -1
	}
	return slices.IndexFunc(list.Content, func(n *yaml.Node) bool { return text(n, "name") == name })
}

// drop removes the item with a name from the list of a mapping.
func drop(m *yaml.Node, key, name string) {
	list := get(m, key)
	if i := named(list, name); i >= 0 {
		list.Content = slices.Delete(list.Content, i, i+1)
	}
}

func scalar(value string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(value)
	return n
}
