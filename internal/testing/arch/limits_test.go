// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// The limits of a tree that people can read.
const (
	maxFileLines    = 400   // of any Go file, tests too
	maxPackageLines = 4_000 // of a package without its tests
	maxExported     = 15    // names of one of the packages in exportedNow
	maxComment      = 100   // columns of a line that is a comment
)

// longFiles are files beyond maxFileLines, with the lines that they have. The list only shrinks.
var longFiles = map[string]int{
	"internal/operator/dlq/dlq_test.go": 429,
}

// largePackages are packages beyond maxPackageLines, with the lines that they may have, and why.
// The list only shrinks.
var largePackages = map[string]struct {
	lines int
	why   string
}{
	"internal/amqp":             {5_040, "one codec: a performative, its reader and its writer belong together"},
	"internal/amqp/relay":       {5_640, "links, tokens and settlements share the state of one pair of connections"},
	"internal/broker":           {7_100, "namespace, entities and links share the state of one namespace"},
	"internal/broker/queue":     {4_140, "entries, their index and their heaps share one mutex"},
	"internal/config":           {4_110, "one table of settings, and the checks that need several of them"},
	"internal/testing/exercise": {5_420, "one suite of statements, in a file for each group"},
	"proxy":                     {4_070, "both endpoints share one send path, and the settlements that end what it began"},
}

// exportedNow are the product's packages with the exported names that they may have. maxExported is
// the aim.
var exportedNow = map[string]int{"proxy": maxExported, "scheduler": maxExported, "monitor": maxExported, "alert": 46}

// longComments is how many lines of comments go beyond maxComment in all packages. It only shrinks.
const longComments = 230

// A sized file is one Go file of the module.
type sizedFile struct {
	path     string // from the root, with slashes
	pkg      string
	lines    int
	comments int // that are beyond maxComment
	exported []string
}

func (f sizedFile) isTest() bool { return strings.HasSuffix(f.path, "_test.go") }

func sizedFiles(t *testing.T) (all []sizedFile) {
	t.Helper()
	root := filepath.Join("..", "..", "..")
	walk(t, ".go", func(path string) {
		rel, err := filepath.Rel(root, path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f := sizedFile{path: filepath.ToSlash(rel), lines: strings.Count(string(text), "\n")}
		f.pkg = filepath.ToSlash(filepath.Dir(rel))
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSuffix(line, "\n")
			if strings.HasPrefix(strings.TrimSpace(line), "//") && utf8.RuneCountInString(line) > maxComment && !isUnbreakable(line) {
				f.comments++
			}
		}
		if _, counted := exportedNow[f.pkg]; counted && !f.isTest() {
			f.exported = exportedNames(t, path)
		}
		all = append(all, f)
	})
	if len(all) < 500 {
		t.Fatalf("%d Go files, want those of the module", len(all))
	}
	return all
}

// isUnbreakable reports whether a comment is a line of code or of a table, one long word, such as
// an address, or a directive.
func isUnbreakable(line string) bool {
	text := strings.TrimSpace(line)
	return strings.HasPrefix(text, "//\t") || strings.HasPrefix(text, "//go:") || strings.HasPrefix(text, "//nolint") || strings.Contains(text, "https://") && len(strings.Fields(text)) <= 3
}

// exportedNames returns the exported declarations of a file, without methods.
func exportedNames(t *testing.T, path string) (names []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil && d.Name.IsExported() {
				names = append(names, d.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					if spec.Name.IsExported() {
						names = append(names, spec.Name.Name)
					}
				case *ast.ValueSpec:
					for _, n := range spec.Names {
						if n.IsExported() {
							names = append(names, n.Name)
						}
					}
				}
			}
		}
	}
	return names
}

func TestFilesAreShort(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range sizedFiles(t) {
		most, excused := longFiles[f.path]
		seen[f.path] = true
		switch {
		case f.lines <= maxFileLines && excused:
			t.Errorf("%s has %d lines; take it out of longFiles", f.path, f.lines)
		case f.lines > max(most, maxFileLines):
			t.Errorf("%s has %d lines, want %d at most", f.path, f.lines, max(most, maxFileLines))
		}
	}
	for path := range longFiles {
		if !seen[path] {
			t.Errorf("longFiles has %s, which does not exist", path)
		}
	}
}

func TestPackagesAreOfASizeThatCanBeRead(t *testing.T) {
	lines := map[string]int{}
	for _, f := range sizedFiles(t) {
		if !f.isTest() {
			lines[f.pkg] += f.lines
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(lines)) {
		row, excused := largePackages[pkg]
		switch n := lines[pkg]; {
		case n <= maxPackageLines && excused:
			t.Errorf("%s has %d lines; take it out of largePackages", pkg, n)
		case n > max(row.lines, maxPackageLines):
			t.Errorf("%s has %d lines without tests, want %d at most", pkg, n, max(row.lines, maxPackageLines))
		case excused:
			t.Logf("%s has %d lines: %s", pkg, n, row.why)
		}
	}
	for pkg, row := range largePackages {
		if lines[pkg] == 0 || row.why == "" {
			t.Errorf("largePackages has %s, which does not exist or has no reason", pkg)
		}
	}
}

func TestTheProductExportsFewNames(t *testing.T) {
	exported := map[string]int{}
	for _, f := range sizedFiles(t) {
		exported[f.pkg] += len(f.exported)
	}
	for pkg, most := range exportedNow {
		switch n := exported[pkg]; {
		case n == 0:
			t.Errorf("%s exports nothing, or does not exist", pkg)
		case n > max(most, maxExported):
			t.Errorf("%s exports %d names, want %d at most, and %d in the end", pkg, n, most, maxExported)
		}
	}
}

func TestCommentsEndByTheColumn(t *testing.T) {
	long, total := map[string]int{}, 0
	for _, f := range sizedFiles(t) {
		if f.comments > 0 {
			long[f.pkg] += f.comments
			total += f.comments
		}
	}
	if total > longComments {
		t.Errorf("%d lines of comments go beyond column %d, want %d at most: %v", total, maxComment, longComments, long)
	}
	t.Logf("%d lines of comments go beyond column %d: %v", total, maxComment, long)
}
