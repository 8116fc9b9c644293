// SPDX-License-Identifier: Apache-2.0

package config

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A setting in a message, such as monitor.entities[0].deadline or proxy.listen.
var settingInText = regexp.MustCompile(`\b(monitor|alerts|listen|proxy|broker|journal|canary|heartbeat|log|limits)(\[(%d|\d*)\])?\.[a-z][A-Za-z]*((\[(%d|\d*)\])?\.[a-z][A-Za-z]*)*`)

var indexInText = regexp.MustCompile(`\[(%d|\d*)\]`)

// The program's messages name only settings that exist: a fix that names another one costs the
// operator who tries it.
func TestMessagesNameSettingsThatExist(t *testing.T) {
	named := 0
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && rel != "." || rel == "test" || rel == "bin" || rel == "deploy" || rel == "internal/testing") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(lit.Value)
			if err != nil || !strings.Contains(text, " ") { // not a sentence
				return true
			}
			for _, name := range settingInText.FindAllString(text, -1) {
				named++
				if !strings.HasSuffix(name, ".md") && !exists(indexInText.ReplaceAllString(name, "[]")) {
					t.Errorf("%s names the setting %s, which does not exist: %s", rel, name, text)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if named < 30 {
		t.Errorf("%d settings are named, want those of all messages", named)
	}
}

// exists reports whether a path is that of a setting, or of a section.
func exists(path string) bool {
	for _, s := range Settings {
		if s.Path == path || strings.HasPrefix(s.Path, path+".") || strings.HasPrefix(s.Path, path+"[].") {
			return true
		}
	}
	return false
}
