// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A pattern that fits no test any more would run nothing and pass.
func TestPatternsOfTheMakefileFitTests(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	large := regexp.MustCompile(`(?m)^LARGE := (\S+)$`).FindStringSubmatch(string(text))
	if large == nil {
		t.Fatal("the Makefile has no line LARGE := …")
	}
	runs := regexp.MustCompile(`go test .*?(\./\S+) -run '?([^'\s]+)`).FindAllStringSubmatch(string(text), -1)
	if len(runs) < 4 {
		t.Errorf("the Makefile runs tests by a pattern in %d places, want 4 at least", len(runs))
	}
	for _, m := range runs {
		tests := testsOf(t, m[1])
		pattern := strings.ReplaceAll(m[2], "$(LARGE)", large[1])
		if strings.HasPrefix(pattern, "^$") {
			continue // benchmarks and fuzz targets
		}
		for _, part := range strings.Split(pattern, "|") {
			fits := regexp.MustCompile(part)
			if !slices.ContainsFunc(tests, fits.MatchString) {
				t.Errorf("-run %s: no test of %s fits", part, m[1])
			}
		}
	}
}

// testsOf returns the names of the tests of a package, which is given as ./its/folder.
func testsOf(t *testing.T, pkg string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "..", filepath.FromSlash(pkg), "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range files {
		for _, d := range parse(t, file).Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				names = append(names, f.Name.Name)
			}
		}
	}
	return names
}
