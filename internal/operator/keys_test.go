// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"overdue/internal/config"
)

// A person who follows a fix looks for the key in the configuration.
func TestTheDoctorNamesSettingsThatExist(t *testing.T) {
	files, err := filepath.Glob("doctor/*.go")
	if err != nil {
		t.Fatal(err)
	}
	key := regexp.MustCompile(`\b(?:monitor(?:\.[a-zA-Z]+)+|(?:namespace|monitor|redis|companion)[A-Z][a-zA-Z]*)\b`)
	found := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				text, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				for _, path := range key.FindAllString(text, -1) {
					found[path] = true
				}
			}
			return true
		})
	}
	for path := range found {
		if config.SettingAt(path) == nil {
			t.Errorf("the doctor names %s, which is no setting", path)
		}
	}
	for _, path := range []string{"monitor.deadline", "monitor.entities", "namespaceAdmin", "monitorQueue", "companionStore", "redisAuthorityFile"} {
		if !found[path] {
			t.Errorf("%s was not found in the texts of the doctor: %v", path, found)
		}
	}
	// These keys begin with the element that is listed.
	for _, path := range []string{"monitor.entities[].deadline", "monitor.entities[].expire", "monitor.entities[].forwardMissedTo", "alerts[].serviceBus.entity", "canary.queue", "heartbeat.url"} {
		if config.SettingAt(path) == nil {
			t.Errorf("%s is no setting", path)
		}
	}
}
