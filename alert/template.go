// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"text/template/parse"
)

// Bounds of what a template does, so that a loop in one cannot hold up what has to be said.
const (
	maxSteps = 100_000 // nodes walked
	maxDepth = 100     // templates in templates
	maxSaid  = 1 << 20 // bytes
)

// A pageTemplate is a Go template that is executed without looking methods up by name: text/template does, and with that
// the linker has to keep every method of the whole program. The language is the same, and so is what comes out, but for
// the methods, which are those of the table methods, and complex numbers, which there are none of.
type pageTemplate struct {
	name  string
	trees map[string]*parse.Tree
}

func parsePageTemplate(name, text string) (*pageTemplate, error) {
	trees, err := parse.Parse(name, text, "", "", functionNames())
	if err != nil {
		return nil, err
	}
	return &pageTemplate{name, trees}, nil
}

// failure is what a walk is ended with; nothing else that panics is recovered.
type failure struct{ error }

// execute returns what the template makes of data.
func (t *pageTemplate) execute(data any) (said string, err error) {
	defer func() {
		if r := recover(); r != nil {
			f, ok := r.(failure)
			if !ok {
				panic(r)
			}
			said, err = "", fmt.Errorf("template: %s: %w", t.name, f.error)
		}
	}()
	var out strings.Builder
	w := &walk{template: t, out: &out}
	w.call(t.name, reflect.ValueOf(data))
	return out.String(), nil
}

// A walk is one execution.
type walk struct {
	template     *pageTemplate
	out          *strings.Builder
	vars         []variable
	steps, depth int
	node         parse.Node // of the latest action, for errors
}

type variable struct {
	name  string
	value reflect.Value
}

// after says how a loop goes on after a list.
type after int

const (
	afterNext after = iota
	afterBreak
	afterContinue
)

func (w *walk) fail(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	if w.node != nil {
		where := w.node.String()
		err = fmt.Errorf("%s: %w", cut(where, 80), err)
	}
	panic(failure{err})
}

// call executes a template by its name; its variables are its own.
func (w *walk) call(name string, dot reflect.Value) {
	tree := w.template.trees[name]
	if tree == nil {
		w.fail("there is no template %q", name)
	}
	if w.depth++; w.depth > maxDepth {
		w.fail("templates are more than %d deep in each other", maxDepth)
	}
	outer := w.vars
	w.vars = []variable{{"$", dot}}
	w.list(dot, tree.Root)
	w.vars = outer
	w.depth--
}

func (w *walk) list(dot reflect.Value, list *parse.ListNode) after {
	if list == nil {
		return afterNext
	}
	for _, n := range list.Nodes {
		if next := w.one(dot, n); next != afterNext {
			return next
		}
	}
	return afterNext
}

func (w *walk) step() {
	if w.steps++; w.steps > maxSteps {
		w.fail("takes more than %d steps", maxSteps)
	}
	if w.out.Len() > maxSaid {
		w.fail("says more than %d bytes", maxSaid)
	}
}

func (w *walk) one(dot reflect.Value, n parse.Node) after {
	w.step()
	switch n := n.(type) {
	case *parse.TextNode:
		w.out.Write(n.Text)
	case *parse.CommentNode:
	case *parse.BreakNode:
		return afterBreak
	case *parse.ContinueNode:
		return afterContinue
	case *parse.ActionNode:
		w.node = n
		if v := w.pipe(dot, n.Pipe); len(n.Pipe.Decl) == 0 {
			fmt.Fprint(w.out, printable(v))
		}
	case *parse.TemplateNode:
		w.node = n
		w.call(n.Name, w.pipe(dot, n.Pipe))
	case *parse.IfNode:
		return w.branch(dot, &n.BranchNode, false)
	case *parse.WithNode:
		return w.branch(dot, &n.BranchNode, true)
	case *parse.RangeNode:
		w.loop(dot, n)
	default:
		w.fail("%s is not known here", n)
	}
	return afterNext
}

func (w *walk) branch(dot reflect.Value, n *parse.BranchNode, with bool) after {
	mark := len(w.vars)
	defer func() { w.vars = w.vars[:mark] }()
	w.node = n.Pipe
	v := w.pipe(dot, n.Pipe)
	if !truth(v) {
		return w.list(dot, n.ElseList)
	}
	if with {
		dot = v
	}
	return w.list(dot, n.List)
}

func (w *walk) loop(dot reflect.Value, n *parse.RangeNode) {
	mark := len(w.vars)
	defer func() { w.vars = w.vars[:mark] }()
	w.node = n.Pipe
	over, _ := indirect(w.pipe(dot, n.Pipe))
	top, ran := len(w.vars), false
	body := func(index, elem reflect.Value) bool {
		ran = true
		w.step()
		w.vars = w.vars[:top]
		if d := n.Pipe.Decl; len(d) > 0 {
			w.loopVar(n.Pipe, len(d)-1, elem)
			if len(d) > 1 {
				w.loopVar(n.Pipe, 0, index)
			}
		}
		return w.list(elem, n.List) != afterBreak
	}
	switch {
	case !over.IsValid():
	case over.CanInt() || over.CanUint():
		if len(n.Pipe.Decl) > 1 {
			w.fail("a number has no index to range over")
		}
		for v := range over.Seq() {
			if !body(reflect.Value{}, v) {
				break
			}
		}
	case over.Kind() == reflect.Slice || over.Kind() == reflect.Array:
		for i := range over.Len() {
			if !body(reflect.ValueOf(i), over.Index(i)) {
				break
			}
		}
	case over.Kind() == reflect.Map && over.Type().Key().Kind() == reflect.String:
		keys := over.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return cmp.Compare(a.String(), b.String()) })
		for _, key := range keys {
			if !body(key, over.MapIndex(key)) {
				break
			}
		}
	default:
		w.fail("cannot range over %s", over.Type())
	}
	if !ran {
		w.list(dot, n.ElseList)
	}
}

// loopVar sets the i-th variable of a range, which its pipeline has declared unless it assigns.
func (w *walk) loopVar(p *parse.PipeNode, i int, v reflect.Value) {
	if p.IsAssign {
		w.assign(p.Decl[i].Ident[0], v)
		return
	}
	w.vars[len(w.vars)-len(p.Decl)+i].value = v
}

func (w *walk) assign(name string, v reflect.Value) {
	for i, known := range slices.Backward(w.vars) {
		if known.name == name {
			w.vars[i].value = v
			return
		}
	}
	w.fail("there is no variable %s", name)
}

func (w *walk) variable(name string) reflect.Value {
	for _, known := range slices.Backward(w.vars) {
		if known.name == name {
			return known.value
		}
	}
	w.fail("there is no variable %s", name)
	return reflect.Value{}
}

// pipe is the value of a pipeline; the variables that it declares stay.
func (w *walk) pipe(dot reflect.Value, p *parse.PipeNode) (v reflect.Value) {
	if p == nil {
		return v
	}
	for i, c := range p.Cmds {
		var last []reflect.Value
		if i > 0 {
			last = []reflect.Value{v}
		}
		v = w.command(dot, c, last)
	}
	for _, d := range p.Decl {
		if p.IsAssign {
			w.assign(d.Ident[0], v)
		} else {
			w.vars = append(w.vars, variable{d.Ident[0], v})
		}
	}
	return v
}

// command is the value of one command, whose last argument may come from the one before.
func (w *walk) command(dot reflect.Value, c *parse.CommandNode, last []reflect.Value) reflect.Value {
	w.step()
	first, rest := c.Args[0], c.Args[1:]
	args := func() []reflect.Value {
		var all []reflect.Value
		for _, a := range rest {
			all = append(all, w.value(dot, a))
		}
		return append(all, last...)
	}
	switch n := first.(type) {
	case *parse.FieldNode:
		return w.chain(dot, n.Ident, args)
	case *parse.ChainNode:
		return w.chain(w.value(dot, n.Node), n.Field, args)
	case *parse.VariableNode:
		if len(n.Ident) > 1 {
			return w.chain(w.variable(n.Ident[0]), n.Ident[1:], args)
		}
	case *parse.IdentifierNode:
		return w.function(n.Ident, dot, rest, last)
	case *parse.NilNode:
		w.fail("nil is not a command")
	}
	if len(rest)+len(last) > 0 {
		w.fail("%s takes no arguments", first)
	}
	return w.value(dot, first)
}

// value is that of an argument.
func (w *walk) value(dot reflect.Value, n parse.Node) reflect.Value {
	none := func() []reflect.Value { return nil }
	switch n := n.(type) {
	case *parse.DotNode:
		return dot
	case *parse.NilNode:
	case *parse.FieldNode:
		return w.chain(dot, n.Ident, none)
	case *parse.VariableNode:
		return w.chain(w.variable(n.Ident[0]), n.Ident[1:], none)
	case *parse.ChainNode:
		return w.chain(w.value(dot, n.Node), n.Field, none)
	case *parse.PipeNode:
		return w.pipe(dot, n)
	case *parse.IdentifierNode:
		return w.function(n.Ident, dot, nil, nil)
	case *parse.BoolNode:
		return reflect.ValueOf(n.True)
	case *parse.StringNode:
		return reflect.ValueOf(n.Text)
	case *parse.NumberNode:
		return w.number(n)
	default:
		w.fail("%s is not known here", n)
	}
	return reflect.Value{}
}

// number is that of a constant, by the rules of Go.
func (w *walk) number(n *parse.NumberNode) reflect.Value {
	hex := strings.HasPrefix(strings.ToLower(strings.TrimLeft(n.Text, "+-")), "0x")
	switch {
	case strings.HasPrefix(n.Text, "'") && n.IsInt:
		return reflect.ValueOf(rune(n.Int64))
	case n.IsFloat && (hex && strings.ContainsAny(n.Text, ".pP") || !hex && strings.ContainsAny(n.Text, ".eEpP")):
		return reflect.ValueOf(n.Float64)
	case n.IsInt && !strings.HasSuffix(n.Text, "i"):
		return reflect.ValueOf(int(n.Int64))
	}
	w.fail("%s is no number that can be used here", n.Text)
	return reflect.Value{}
}

// chain goes from v to its field, to the field of that and so on. The last may be a method that takes arguments.
func (w *walk) chain(v reflect.Value, names []string, args func() []reflect.Value) reflect.Value {
	for i, name := range names {
		var given []reflect.Value
		if i == len(names)-1 {
			given = args()
		}
		v = w.field(v, name, given)
	}
	return v
}

func (w *walk) field(v reflect.Value, name string, args []reflect.Value) reflect.Value {
	v, isNil := indirect(v)
	if isNil || !v.IsValid() {
		w.fail("there is nothing here that could have %s", name)
	}
	if m, ok := methods[v.Type()][name]; ok {
		out, err := invoke(reflect.ValueOf(m), append([]reflect.Value{v}, args...))
		if err != nil {
			w.fail("%s: %w", name, err)
		}
		return out
	}
	var found reflect.Value
	switch {
	case v.Kind() == reflect.Struct:
		f, ok := v.Type().FieldByName(name)
		if !ok || !f.IsExported() {
			w.fail("%s has no %s", v.Type(), name)
		}
		found = v.FieldByIndex(f.Index)
	case v.Kind() == reflect.Map && v.Type().Key().Kind() == reflect.String:
		if found = v.MapIndex(reflect.ValueOf(name).Convert(v.Type().Key())); !found.IsValid() {
			found = reflect.Zero(v.Type().Elem())
		}
	default:
		w.fail("%s has no %s", v.Type(), name)
	}
	if len(args) > 0 {
		w.fail("%s takes no arguments", name)
	}
	return found
}

// indirect follows pointers. A nil one is returned with true.
func indirect(v reflect.Value) (reflect.Value, bool) {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		if v.IsNil() {
			return v, true
		}
		v = v.Elem()
	}
	return v, false
}

var errArguments = errors.New("wrong number of arguments")
