// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

func TestTheExampleHasEveryKeyAndIsRight(t *testing.T) {
	text := Example()
	c, err := load(t, text, nil, nil)
	if err != nil {
		t.Fatalf("the example does not load: %v", err)
	}
	for _, r := range c.Roles() {
		if err := c.CheckRole(r); err != nil {
			t.Errorf("the example is wrong for %s: %v", r.Name, err)
		}
	}
	if err := bySchema(t, text); err != nil {
		t.Errorf("the example does not fit the schema: %v", err)
	}
	var root yaml.Node
	if err := yaml.Unmarshal([]byte(text), &root); err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	var collect func(path string, n *yaml.Node)
	collect = func(path string, n *yaml.Node) {
		shown[path] = true
		switch n.Kind {
		case yaml.MappingNode:
			for i := 0; i+1 < len(n.Content); i += 2 {
				collect(strings.TrimPrefix(path+"."+n.Content[i].Value, "."), n.Content[i+1])
			}
		case yaml.SequenceNode:
			for _, element := range n.Content {
				collect(path+"[]", element)
			}
		}
	}
	collect("", root.Content[0])
	comments := strings.Join(strings.Fields(strings.ReplaceAll(text, "# ", "")), " ")
	for _, s := range Settings {
		if !shown[s.Path] {
			t.Errorf("the example lacks %s", s.Path)
		}
		if !strings.Contains(comments, s.Help) {
			t.Errorf("the example does not describe %s", s.Path)
		}
	}
	for line := range strings.Lines(text) {
		if len([]rune(strings.TrimRight(line, "\n"))) > exampleWidth && strings.Contains(line, "#") {
			t.Errorf("a comment is too wide: %s", line)
		}
	}
}
