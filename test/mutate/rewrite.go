// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed switch.go.txt
var switchSource string

// A mutant is one way in which the code may be wrong.
type mutant struct {
	id    int
	file  string // without its folder
	line  int
	what  string
	edits []edit
}

// edit replaces the bytes from offset to end with text. Those of one offset are written in the
// order of their ranks.
type edit struct {
	offset, end, rank int
	text              string
}

// pkg is a package and its mutants.
type pkg struct {
	path, name, dir string
	files           []string
	mutants         []*mutant
	overlay         string

	fset *token.FileSet
	info *types.Info
}

// load reads a package and finds its mutants.
func load(ctx context.Context, pattern string) (*pkg, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-deps", "-export", "-json=ImportPath,Name,Dir,GoFiles,Export,DepOnly", pattern).Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	exports := map[string]string{}
	p := &pkg{fset: token.NewFileSet(), info: &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var one struct {
			ImportPath, Name, Dir, Export string
			GoFiles                       []string
			DepOnly                       bool
		}
		if err := d.Decode(&one); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		exports[one.ImportPath] = one.Export
		if !one.DepOnly {
			p.path, p.name, p.dir, p.files = one.ImportPath, one.Name, one.Dir, one.GoFiles
		}
	}
	var files []*ast.File
	for _, name := range p.files {
		f, err := parser.ParseFile(p.fset, filepath.Join(p.dir, name), nil, 0)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	lookup := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	conf := types.Config{Importer: importer.ForCompiler(p.fset, "gc", lookup)}
	if _, err := conf.Check(p.path, p.fset, files, p.info); err != nil {
		return nil, err
	}
	for _, f := range files {
		p.find(f)
	}
	return p, nil
}

// add notes a mutant that wraps the code from one position to another.
func (p *pkg) add(from, to token.Pos, what, before, after string, more ...edit) {
	m := &mutant{id: len(p.mutants) + 1, what: what}
	at, end := p.fset.Position(from), p.fset.Position(to)
	m.file, m.line = filepath.Base(at.Filename), at.Line
	size := end.Offset - at.Offset
	// What begins at one place is written from the widest to the narrowest, what ends there the other
	// way round.
	m.edits = append([]edit{
		{at.Offset, at.Offset, -size, strings.ReplaceAll(before, "ID", fmt.Sprint(m.id))},
		{end.Offset, end.Offset, size - 1<<30, after},
	}, more...)
	p.mutants = append(p.mutants, m)
}

func (p *pkg) text(n ast.Node) string {
	return types.ExprString(n.(ast.Expr))
}

var comparisons = map[token.Token][2]string{
	token.LSS: {"mutantLess", "<="}, token.LEQ: {"mutantLessEq", "<"}, token.GTR: {"mutantGreater", ">="}, token.GEQ: {"mutantGreaterEq", ">"},
}

var arithmetic = map[token.Token][2]string{
	token.ADD: {"mutantAdd", "-"}, token.SUB: {"mutantSub", "+"}, token.MUL: {"mutantMul", "/"}, token.QUO: {"mutantDiv", "*"},
}

func (p *pkg) find(f *ast.File) {
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GenDecl:
			return n.Tok == token.VAR
		case *ast.IfStmt:
			p.condition(n.Cond)
		case *ast.ForStmt:
			if n.Cond != nil {
				p.condition(n.Cond)
			}
		case *ast.BinaryExpr:
			p.binary(n)
		case *ast.ReturnStmt:
			for _, r := range n.Results {
				if t := p.info.Types[r].Type; t != nil && t.String() == "error" {
					p.add(r.Pos(), r.End(), "return "+p.text(r)+" → nil", "mutantErr(ID, ", ")")
				}
			}
		case *ast.BlockStmt:
			p.statements(n.List)
		case *ast.CaseClause:
			for _, e := range n.List {
				if b, ok := p.info.Types[e]; ok && b.Type.String() == "bool" && b.Value == nil {
					p.condition(e)
				}
			}
			p.statements(n.Body)
		case *ast.CommClause:
			p.statements(n.Body)
		}
		return true
	})
}

func (p *pkg) condition(e ast.Expr) {
	if tv := p.info.Types[e]; tv.Value == nil {
		p.add(e.Pos(), e.End(), p.text(e)+" → not", "mutantNot(ID, ", ")")
	}
}

func (p *pkg) binary(n *ast.BinaryExpr) {
	tv, x, y := p.info.Types[n], p.info.Types[n.X], p.info.Types[n.Y]
	basic, ok := x.Type.Underlying().(*types.Basic)
	if tv.Value != nil || !ok {
		return
	}
	if x.Value != nil {
		basic, ok = y.Type.Underlying().(*types.Basic)
	}
	names, found := comparisons[n.Op]
	if arith, is := arithmetic[n.Op]; is && ok && basic.Info()&(types.IsInteger|types.IsFloat) != 0 {
		names, found = arith, true
	}
	if !found || !ok {
		return
	}
	at := p.fset.Position(n.OpPos).Offset
	p.add(n.Pos(), n.End(), fmt.Sprintf("%s: %s → %s", p.text(n), n.Op, names[1]), names[0]+"(ID, ", ")", edit{at, at + len(n.Op.String()), 0, ","})
}

// statements finds those that may be left out.
func (p *pkg) statements(list []ast.Stmt) {
	for _, s := range list {
		what := ""
		switch s := s.(type) {
		case *ast.ExprStmt:
			if call, ok := s.X.(*ast.CallExpr); ok {
				if id, named := call.Fun.(*ast.Ident); !named || id.Name != "panic" {
					what = p.text(call)
				}
			}
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE && (len(s.Lhs) != 1 || p.text(s.Lhs[0]) != "_") {
				what = p.text(s.Lhs[0]) + " " + s.Tok.String() + " " + p.text(s.Rhs[0])
			}
		case *ast.IncDecStmt:
			what = p.text(s.X) + s.Tok.String()
		}
		if what != "" {
			p.add(s.Pos(), s.End(), what+": left out", "if !mutantOn(ID) { ", " }")
		}
	}
}

// write makes the sources with all mutants in them, and the overlay for the compiler.
func (p *pkg) write(dir string) error {
	replace := map[string]string{}
	for _, name := range p.files {
		text, err := os.ReadFile(filepath.Join(p.dir, name))
		if err != nil {
			return err
		}
		var edits []edit
		for _, m := range p.mutants {
			if m.file == name && m.edits != nil {
				edits = append(edits, m.edits...)
			}
		}
		slices.SortStableFunc(edits, func(a, b edit) int { return cmp.Or(cmp.Compare(a.offset, b.offset), cmp.Compare(a.rank, b.rank)) })
		var out strings.Builder
		from := 0
		for _, e := range edits {
			out.Write(text[from:e.offset])
			out.WriteString(e.text)
			from = e.end
		}
		out.Write(text[from:])
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(out.String()), 0o600); err != nil {
			return err
		}
		replace[filepath.Join(p.dir, name)] = file
	}
	helper := filepath.Join(dir, "mutant_switch.go")
	source := strings.NewReplacer("PACKAGE", p.name, "COUNT", fmt.Sprint(len(p.mutants))).Replace(switchSource)
	if err := os.WriteFile(helper, []byte(source), 0o600); err != nil {
		return err
	}
	replace[filepath.Join(p.dir, "mutant_switch.go")] = helper
	plan, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	p.overlay = filepath.Join(dir, "overlay.json")
	return os.WriteFile(p.overlay, plan, 0o600)
}
