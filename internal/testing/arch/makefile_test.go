// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"go/ast"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A pattern that fits no test any more would run nothing and pass.
func TestPatternsOfTheMakefileFitTests(t *testing.T) {
	runs := runsOfTheMakefile(t)
	if len(runs) < 4 {
		t.Errorf("the Makefile runs tests by a pattern in %d places, want 4 at least", len(runs))
	}
	for _, r := range runs {
		tests := testsOf(t, r.pkg)
		for part := range strings.SplitSeq(r.pattern, "|") {
			fits := regexp.MustCompile(part)
			if !slices.ContainsFunc(tests, fits.MatchString) {
				t.Errorf("-run %s: no test of %s fits", part, r.pkg)
			}
		}
	}
}

// What is left out under the race detector has to run without it.
func TestWhatTheMakefileLeavesOutItRunsElsewhere(t *testing.T) {
	unraced := regexp.MustCompile(variableOfTheMakefile(t, "UNRACED"))
	runs := runsOfTheMakefile(t)
	packages := map[string]bool{}
	root := filepath.Join("..", "..", "..")
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(file, "_test.go") {
			pkg, _ := filepath.Rel(root, filepath.Dir(file)) // it is below
			packages["./"+filepath.ToSlash(pkg)] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for pkg := range packages {
		for _, name := range testsOf(t, pkg) {
			if unraced.MatchString(name) && !slices.ContainsFunc(runs, func(r testRun) bool { return r.pkg == pkg && regexp.MustCompile(r.pattern).MatchString(name) }) {
				t.Errorf("%s of %s fits UNRACED, and nothing runs it without the race detector", name, pkg)
			}
		}
	}
}

// A testRun is a line of the Makefile that runs some tests of a package.
type testRun struct{ pkg, pattern string }

func runsOfTheMakefile(t *testing.T) (runs []testRun) {
	t.Helper()
	large := variableOfTheMakefile(t, "LARGE")
	for _, m := range regexp.MustCompile(`go test .*?(\./\S+) -run '?([^'\s]+)`).FindAllStringSubmatch(makefile(t), -1) {
		if !strings.HasPrefix(m[2], "^$") { // benchmarks and fuzz targets
			runs = append(runs, testRun{m[1], strings.ReplaceAll(m[2], "$(LARGE)", large)})
		}
	}
	return runs
}

func variableOfTheMakefile(t *testing.T, name string) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + name + ` := (\S+)$`).FindStringSubmatch(makefile(t))
	if m == nil {
		t.Fatalf("the Makefile has no line %s := …", name)
	}
	return m[1]
}

func makefile(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
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
