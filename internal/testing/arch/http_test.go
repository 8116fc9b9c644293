// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// notShipped are packages that are no part of the program. They may make HTTP clients.
var notShipped = []string{"examples/rest/go", "internal/testing/exercise", "internal/testing/redistest"}

// Only internal/httpclient makes HTTP clients, since only those follow no redirect.
func TestHTTPClientsAreMadeInOnePlace(t *testing.T) {
	root := os.DirFS(filepath.Join("..", "..", ".."))
	seen := 0
	for folder := range allowed {
		if folder == "internal/httpclient" || slices.Contains(notShipped, folder) {
			continue
		}
		files, err := fs.Glob(root, path.Join(folder, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			seen++
			text, err := fs.ReadFile(root, file)
			if err != nil {
				t.Fatal(err)
			}
			for _, fault := range clientsMade(t, file, text) {
				t.Errorf("%s; take internal/httpclient, whose clients follow no redirect", fault)
			}
		}
	}
	if seen < 100 {
		t.Errorf("%d files were read, want the whole program", seen)
	}
}

// clientsMade are the places of a file where a client of net/http is made, or one of its own is
// used.
func clientsMade(t *testing.T, file string, text []byte) (faults []string) {
	t.Helper()
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, file, text, 0)
	if err != nil {
		t.Fatal(err)
	}
	name := ""
	for _, spec := range parsed.Imports {
		if imported, err := strconv.Unquote(spec.Path.Value); err != nil || imported != "net/http" {
			continue
		}
		if name = "http"; spec.Name != nil {
			name = spec.Name.Name
		}
	}
	if name == "" {
		return nil
	}
	pointed := map[*ast.SelectorExpr]bool{} // types of pointers, which make nothing
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.StarExpr:
			if s, ok := n.X.(*ast.SelectorExpr); ok {
				pointed[s] = true
			}
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); !ok || x.Name != name || pointed[n] {
				break
			}
			if slices.Contains([]string{"Client", "DefaultClient", "DefaultTransport", "Get", "Head", "Post", "PostForm"}, n.Sel.Name) {
				faults = append(faults, fmt.Sprintf("%s has %s.%s", files.Position(n.Pos()), name, n.Sel.Name))
			}
		}
		return true
	})
	return faults
}

func TestTheSearchForHTTPClientsFindsThem(t *testing.T) {
	for body, want := range map[string]int{
		"var c = http.DefaultClient": 1, "var c = &http.Client{}": 1, "var c http.Client": 1, "var c = new(http.Client)": 1,
		"func f() { http.Get(``); http.Post(``, ``, nil) }": 2, "var t = http.DefaultTransport": 1,
		"var c *http.Client": 0, "func f(c *http.Client) { c.Get(``) }": 0, "var m = http.MethodGet": 0,
	} {
		if got := clientsMade(t, "x.go", []byte("package x\nimport \"net/http\"\n"+body)); len(got) != want {
			t.Errorf("%s: found %v, want %d", body, got, want)
		}
	}
	if got := clientsMade(t, "x.go", []byte("package x\nimport web \"net/http\"\nvar c web.Client")); len(got) != 1 {
		t.Errorf("under another name: found %v, want 1", got)
	}
}
