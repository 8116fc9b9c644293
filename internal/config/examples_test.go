// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// Every configuration that a page or a manifest shows is what people copy: editors take it, and so does the program.
func TestExamplesFitTheSchema(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*/*.md")
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string][]byte{} // a load is elsewhere
	const compose = "../../deploy/compose/embedded/compose.yaml"
	for _, path := range append(pages, "../../README.md", compose) {
		if texts[path], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```")
	seen := 0
	for path, text := range texts {
		for _, m := range block.FindAllStringSubmatch(string(text), -1) {
			seen++
			fits(t, filepath.Base(path), m[1])
		}
	}
	if seen < 8 {
		t.Errorf("%d examples in the pages, want those of docs", seen)
	}
	var composed struct {
		Configs map[string]struct{ Content string }
	}
	if err := yaml.Unmarshal(texts[compose], &composed); err != nil || len(composed.Configs) == 0 {
		t.Fatalf("%s has no configuration: %v", compose, err)
	}
	for _, c := range composed.Configs {
		fits(t, compose, c.Content)
	}
}

// fits demands that text is a configuration: for the schema altogether, for the program but for files that are not there and for
// queues that are somebody's.
func fits(t *testing.T, where, text string) {
	t.Helper()
	if err := bySchema(t, text); err != nil {
		t.Errorf("%s: %v in\n%s", where, err, text)
	}
	if _, err := load(t, text, nil, nil); err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			queues := strings.Contains(line, "the embedded broker has no ") && where != "tour.md" // which has nothing else
			if !strings.Contains(line, "no such file or directory") && !queues {
				t.Errorf("%s: %s in\n%s", where, line, text)
			}
		}
	}
}

// An operator who begins with the output of config print has an editor that does not complain.
func TestPrintedConfigurationFitsTheSchema(t *testing.T) {
	c, err := load(t, "alerts: [{slack: {url: \"https://example.com\"}}]\nbroker: {queues: [{name: orders}]}\n", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, given := range []bool{false, true} {
		printed, err := c.Sources.YAML(given)
		if err != nil {
			t.Fatal(err)
		}
		if err := bySchema(t, string(printed)); err != nil {
			t.Errorf("given = %v: %v in\n%s", given, err, printed)
		}
	}
}
