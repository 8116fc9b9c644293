// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// Every test that a page names has to exist: a promise without one is a wish.
func TestPagesNameTestsThatExist(t *testing.T) {
	tests := map[string]bool{}
	walk(t, "_test.go", func(path string) {
		for _, d := range parse(t, path).Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
				tests[f.Name.Name] = true
			}
		}
	})
	live := regexp.MustCompile(`live [^;|]*`) // the tests of the Go SDK, in its module
	for name, least := range map[string]int{"internals/guarantees.md": 200, "broker/protocol.md": 50} {
		body, _, _ := strings.Cut(page(t, name), "\n```go\n") // code that is quoted names what it likes
		body = live.ReplaceAllString(body, "")
		named := regexp.MustCompile(`\b(Test|Fuzz)[A-Z]\w+`).FindAllString(body, -1)
		if len(named) < least {
			t.Errorf("docs/%s names %d tests, want those of every promise", name, len(named))
		}
		for _, test := range named {
			if !tests[test] {
				t.Errorf("docs/%s names %s, which does not exist", name, test)
			}
		}
	}
}

// Pages for users say what holds; which test keeps it is for contributors, in docs/internals.
func TestUserPagesNameNoTests(t *testing.T) {
	tests := regexp.MustCompile(`\b(Test|Fuzz)[A-Z]\w+`)
	pages := 0
	walk(t, ".md", func(path string) {
		slash := filepath.ToSlash(path)
		user := filepath.Base(filepath.Dir(path))
		if slash != "../../../README.md" && user != "start" && user != "operate" {
			return
		}
		pages++
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if named := tests.FindString(string(text)); named != "" {
			t.Errorf("%s names a test: %s; docs/internals/guarantees.md is the place", slash, named)
		}
	})
	if pages < 15 {
		t.Errorf("%d pages for users, want the README and those of docs/start and docs/operate", pages)
	}
}

// Every statement of Exercise that docs/broker/protocol.md names has to be one, and
// every file has to be there.
func TestTheProtocolPageNamesWhatThereIs(t *testing.T) {
	page := page(t, "broker/protocol.md")
	stated := statements(t)
	named := regexp.MustCompile("`([A-Z]\\w+/[^`]+)`").FindAllStringSubmatch(page, -1)
	if len(named) < 50 {
		t.Errorf("docs/broker/protocol.md names %d statements of Exercise, want those of its facts", len(named))
	}
	for _, m := range named {
		if !stated[m[1]] {
			t.Errorf("docs/broker/protocol.md names %q, which Exercise does not state", m[1])
		}
	}
	for _, path := range regexp.MustCompile(`\binternal/\w+/\w+\.go\b`).FindAllString(page, -1) {
		if _, err := os.Stat(filepath.Join("../../..", path)); err != nil {
			t.Errorf("docs/broker/protocol.md names %s, which does not exist", path)
		}
	}
}

// statements returns what exercise.Run states, as group/name.
func statements(t *testing.T) map[string]bool {
	t.Helper()
	names, groups := map[string][]string{}, map[string]string{} // by the variable of the specs
	files, err := filepath.Glob("../exercise/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		ast.Inspect(parse(t, path), func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				for _, v := range n.Values {
					names[n.Names[0].Name] = append(names[n.Names[0].Name], specNames(v)...)
				}
			case *ast.CompositeLit: // {"Group", specs}
				if len(n.Elts) == 2 {
					group, isGroup := text(n.Elts[0])
					if specs, isVar := n.Elts[1].(*ast.Ident); isGroup && isVar {
						groups[specs.Name] = group
					}
				}
			}
			return true
		})
	}
	all := map[string]bool{}
	for specs, group := range groups {
		for _, name := range names[specs] {
			all[group+"/"+name] = true
		}
	}
	return all
}

// specNames returns the names in a literal of type []spec.
func specNames(v ast.Expr) (names []string) {
	list, ok := v.(*ast.CompositeLit)
	if !ok {
		return nil
	}
	for _, e := range list.Elts {
		one, ok := e.(*ast.CompositeLit)
		if !ok {
			continue
		}
		for _, f := range one.Elts {
			field, ok := f.(*ast.KeyValueExpr)
			if !ok {
				continue
			}
			key, isField := field.Key.(*ast.Ident)
			if name, isText := text(field.Value); isField && key.Name == "name" && isText {
				names = append(names, name)
			}
		}
	}
	return names
}

// text returns the value of a string literal.
func text(e ast.Expr) (string, bool) {
	l, ok := e.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(l.Value)
	return s, err == nil
}

func parse(t *testing.T, path string) *ast.File {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// page returns a page of docs.
func page(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../../../docs", filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Every link between the project's own pages has to lead somewhere, and one to a section to a
// heading.
func TestLinksBetweenPagesLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]*)(?:#([^)]*))?\)`)
	sections := 0
	walk(t, ".md", func(path string) {
		page, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(page), -1) {
			target := path
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(path), m[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which does not exist", path, m[1])
				continue
			}
			if m[2] == "" || !strings.HasSuffix(target, ".md") {
				continue
			}
			sections++
			if !headings(t, target)[m[2]] {
				t.Errorf("%s links to %s#%s, and no heading there has that name", path, m[1], m[2])
			}
		}
	})
	if sections < 20 {
		t.Errorf("%d links to sections, want those of the pages", sections)
	}
}

// headings are the names by which the headings of a page are linked to, as GitHub makes them.
func headings(t *testing.T, path string) map[string]bool {
	t.Helper()
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	names, count := map[string]bool{}, map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(page), -1) {
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, strings.TrimSpace(m[1]))
		if n := count[name]; n > 0 {
			names[name+"-"+strconv.Itoa(n)] = true
		}
		count[name]++
		names[name] = true
	}
	return names
}

// walk calls f with every file of the project that ends in suffix.
func walk(t *testing.T, suffix string, f func(path string)) {
	t.Helper()
	err := filepath.WalkDir("../../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "bin" || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if !d.IsDir() && strings.HasSuffix(path, suffix) {
			f(path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A decision is quoted by its number, so two pages must not share one.
func TestDecisionsHaveNumbersOfTheirOwn(t *testing.T) {
	pages, err := filepath.Glob("../../../docs/decisions/[0-9]*.md")
	if err != nil {
		t.Fatal(err)
	}
	by := map[string]string{}
	for _, path := range pages {
		number, _, _ := strings.Cut(filepath.Base(path), "-")
		if number == "0000" {
			continue // the template
		}
		if other := by[number]; other != "" {
			t.Errorf("%s and %s have one number", filepath.Base(path), other)
		}
		by[number] = filepath.Base(path)
		if text, err := os.ReadFile(path); err != nil || !strings.HasPrefix(string(text), "# "+number+": ") {
			t.Errorf("%s does not begin with %q (%v)", filepath.Base(path), "# "+number+": ", err)
		}
	}
	if len(pages) < 10 {
		t.Errorf("%d decisions, want those of docs/decisions", len(pages))
	}
	index := page(t, "decisions/README.md")
	for number, name := range by {
		if !strings.Contains(index, "| "+number+" | ") || !strings.Contains(index, "("+name+")") {
			t.Errorf("docs/decisions/README.md does not list %s", name)
		}
	}
}

// The pages on components name the files in which to read on.
func TestPagesOnComponentsNameFilesThatExist(t *testing.T) {
	body := page(t, "internals/monitor.md")
	files := regexp.MustCompile("`([a-z_]+\\*?\\.go)`").FindAllStringSubmatch(body, -1)
	if len(files) < 15 {
		t.Errorf("docs/internals/monitor.md names %d files, want those of each step", len(files))
	}
	for _, m := range files {
		if found, err := filepath.Glob(filepath.Join("../../../monitor", m[1])); err != nil || len(found) == 0 {
			t.Errorf("docs/internals/monitor.md names %s, which monitor does not have (%v)", m[1], err)
		}
	}
}
