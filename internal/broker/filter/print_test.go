// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"strconv"
	"strings"
)

// String returns the condition in its plainest spelling. Parsed again it is the
// same condition, though it may be longer than MaxLength.
func (f *Filter) String() string {
	var b strings.Builder
	put(&b, f.root, bindsOr)
	return b.String()
}

// String returns the action in its plainest spelling, as that of a Filter.
func (a *Action) String() string {
	var b strings.Builder
	for i, s := range a.statements {
		if i > 0 {
			b.WriteString("; ")
		}
		if s.value == nil {
			b.WriteString("REMOVE ")
			put(&b, s.property, bindsAll)
			continue
		}
		b.WriteString("SET ")
		put(&b, s.property, bindsAll)
		b.WriteString(" = ")
		put(&b, s.value, bindsOr)
	}
	return b.String()
}

// Nodes are printed with the parentheses that they need: around what binds less
// than its place asks for.
type printed interface {
	binds() binding
	print(*strings.Builder)
}

type binding uint8

const (
	bindsOr binding = iota
	bindsAnd
	bindsNot
	bindsCompare
	bindsSum
	bindsProduct
	bindsSign
	bindsAll
)

func put(b *strings.Builder, node any, least binding) {
	n := node.(printed)
	if n.binds() >= least {
		n.print(b)
		return
	}
	b.WriteByte('(')
	n.print(b)
	b.WriteByte(')')
}

func (e constant) binds() binding   { return bindsAll }
func (parameter) binds() binding    { return bindsAll }
func (userProperty) binds() binding { return bindsAll }
func (sysProperty) binds() binding  { return bindsAll }
func (newID) binds() binding        { return bindsAll }
func (propertyOf) binds() binding   { return bindsAll }
func (signed) binds() binding       { return bindsSign }
func (e binaryOp) binds() binding {
	if e.op == '+' || e.op == '-' {
		return bindsSum
	}
	return bindsProduct
}

func (e constant) print(b *strings.Builder) {
	switch e.value.kind {
	case String:
		b.WriteString("'" + strings.ReplaceAll(e.value.s, "'", "''") + "'")
	case Bool:
		b.WriteString(strings.ToUpper(strconv.FormatBool(e.value.Bool())))
	case Int:
		b.WriteString(strconv.FormatInt(e.value.Int(), 10))
	case Float:
		s := strconv.FormatFloat(e.value.Float(), 'G', -1, 64)
		if b.WriteString(s); !strings.ContainsAny(s, ".E") {
			b.WriteString(".0")
		}
	default:
		b.WriteString("NULL")
	}
}

func (e parameter) print(b *strings.Builder)    { b.WriteString("@" + e.name) }
func (e sysProperty) print(b *strings.Builder)  { b.WriteString("sys." + e.p.String()) }
func (newID) print(b *strings.Builder)          { b.WriteString("newid()") }
func (e userProperty) print(b *strings.Builder) { putName(b, e.name) }

// putName writes a name with the marks that it needs.
func putName(b *strings.Builder, name string) {
	if word(name) == len(name) && !reserved(name) {
		b.WriteString(name)
		return
	}
	b.WriteString("[" + strings.ReplaceAll(name, "]", "]]") + "]")
}

func (e propertyOf) print(b *strings.Builder) {
	b.WriteString("property(")
	put(b, e.name, bindsOr)
	b.WriteByte(')')
}

func (e signed) print(b *strings.Builder) {
	b.WriteByte(e.sign)
	put(b, e.of, bindsSign)
}

func (e binaryOp) print(b *strings.Builder) {
	put(b, e.a, e.binds())
	b.WriteString(" " + string(e.op) + " ")
	put(b, e.b, e.binds()+1)
}

func (truthy) binds() binding  { return bindsCompare }
func (not) binds() binding     { return bindsNot }
func (compare) binds() binding { return bindsCompare }
func (isNull) binds() binding  { return bindsCompare }
func (exists) binds() binding  { return bindsAll }
func (in) binds() binding      { return bindsCompare }
func (like) binds() binding    { return bindsCompare }
func (p logic) binds() binding {
	if p.op == isFalse {
		return bindsAnd
	}
	return bindsOr
}

func (p truthy) print(b *strings.Builder) { put(b, p.of, bindsOr) }

func (p not) print(b *strings.Builder) {
	b.WriteString("NOT ")
	put(b, p.of, bindsNot)
}

func (p logic) print(b *strings.Builder) {
	put(b, p.a, p.binds())
	if p.op == isFalse {
		b.WriteString(" AND ")
	} else {
		b.WriteString(" OR ")
	}
	put(b, p.b, p.binds()+1)
}

func (p compare) print(b *strings.Builder) {
	put(b, p.a, bindsSum)
	b.WriteString(" " + comparisons[p.op] + " ")
	put(b, p.b, bindsSum)
}

func (p isNull) print(b *strings.Builder) {
	put(b, p.of, bindsOr)
	if b.WriteString(" IS "); p.negated {
		b.WriteString("NOT ")
	}
	b.WriteString("NULL")
}

func (p exists) print(b *strings.Builder) {
	b.WriteString("EXISTS(")
	put(b, p.of, bindsOr)
	b.WriteByte(')')
}

func (p in) print(b *strings.Builder) {
	put(b, p.a, bindsSum)
	if p.negated {
		b.WriteString(" NOT")
	}
	for i, e := range p.list {
		if i == 0 {
			b.WriteString(" IN (")
		} else {
			b.WriteString(", ")
		}
		put(b, e, bindsSum)
	}
	b.WriteByte(')')
}

func (p like) print(b *strings.Builder) {
	put(b, p.a, bindsSum)
	if p.negated {
		b.WriteString(" NOT")
	}
	b.WriteString(" LIKE ")
	put(b, p.pattern, bindsSum)
	if p.escape != nil {
		b.WriteString(" ESCAPE ")
		put(b, p.escape, bindsSum)
	}
}
