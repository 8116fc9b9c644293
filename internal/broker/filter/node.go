// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"unicode/utf8"
)

// An expression has a value. Nodes do not change once they are parsed.
type expression interface {
	eval(Message) (Value, error)
}

// A predicate is true, false or unknown.
type predicate interface {
	test(Message) (truth, error)
}

type (
	constant  struct{ value Value }
	parameter struct {
		name  string
		value Value
	}
	userProperty struct{ name string }
	sysProperty  struct{ p SysProperty }
	newID        struct{}
	propertyOf   struct{ name expression } // property(name)
	signed       struct {
		sign byte
		of   expression
	}
	binaryOp struct {
		op   byte
		a, b expression
	}
)

func (e constant) eval(Message) (Value, error)       { return e.value, nil }
func (e parameter) eval(Message) (Value, error)      { return e.value, nil }
func (e userProperty) eval(m Message) (Value, error) { return m.User(e.name), nil }
func (e sysProperty) eval(m Message) (Value, error)  { return m.Sys(e.p), nil }

func (newID) eval(Message) (Value, error) {
	var id [16]byte
	binary.BigEndian.PutUint64(id[:8], rand.Uint64())
	binary.BigEndian.PutUint64(id[8:], rand.Uint64())
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80 // version 4
	return GUIDValue(id), nil
}

// eval takes a name with a scope, too. A property that the message does not have is no error, but a
// system property that no message has is. A property that holds no text is its own name: live tests
// of .NET's SDK have PROPERTY(intProperty) = 3.
func (e propertyOf) eval(m Message) (Value, error) {
	name, err := e.name.eval(m)
	_, own := e.name.(userProperty)
	switch {
	case err != nil || name.absent():
		return Value{}, err
	case name.kind != String && own:
		return name, nil
	case name.kind != String:
		return Value{}, evalErrorf("property() takes a string, not %s", name.kind)
	}
	scope, rest, found := strings.Cut(name.s, ".")
	switch {
	case found && strings.EqualFold(scope, "user"):
		return m.User(rest), nil
	case found && strings.EqualFold(scope, "sys"):
		p, known := sysPropertyOf(rest)
		if !known {
			return Value{}, evalErrorf("there is no system property %.50q", rest)
		}
		return m.Sys(p), nil
	}
	return m.User(name.s), nil
}

func (e signed) eval(m Message) (Value, error) {
	v, err := e.of.eval(m)
	if err != nil {
		return Value{}, err
	}
	minus, err := negate(v)
	if e.sign == '-' || err != nil {
		return minus, err
	}
	return v, nil
}

func (e binaryOp) eval(m Message) (Value, error) {
	a, err := e.a.eval(m)
	if err != nil {
		return Value{}, err
	}
	b, err := e.b.eval(m)
	if err != nil {
		return Value{}, err
	}
	return calculate(e.op, a, b)
}

type (
	truthy struct{ of expression } // an expression where a predicate stands
	not    struct{ of predicate }
	logic  struct {
		op   truth // what decides: isFalse for AND, isTrue for OR
		a, b predicate
	}
	compare struct {
		op   comparison
		a, b expression
	}
	isNull struct {
		of      expression
		negated bool
	}
	exists struct{ of expression }
	in     struct {
		a       expression
		list    []expression
		negated bool
	}
	like struct {
		a, pattern, escape expression // escape nil: none
		ready              pattern    // where pattern and escape are constant; nil: they are not
		negated            bool
	}
)

func (p truthy) test(m Message) (truth, error) {
	v, err := p.of.eval(m)
	if err != nil || v.kind != Bool {
		return unknown, err
	}
	return truthOf(v.Bool()), nil
}

func (p not) test(m Message) (truth, error) {
	t, err := p.of.test(m)
	return t.not(), err
}

// test looks at the right side only where the left has not decided.
func (p logic) test(m Message) (truth, error) {
	a, err := p.a.test(m)
	if err != nil || a == p.op {
		return a, err
	}
	b, err := p.b.test(m)
	switch {
	case err != nil:
		return unknown, err
	case b == p.op:
		return b, nil
	case a == unknown:
		return unknown, nil
	}
	return b, nil
}

func (p compare) test(m Message) (truth, error) {
	a, err := p.a.eval(m)
	if err != nil {
		return unknown, err
	}
	b, err := p.b.eval(m)
	if err != nil {
		return unknown, err
	}
	return p.op.compare(a, b), nil
}

func (p isNull) test(m Message) (truth, error) {
	v, err := p.of.eval(m)
	return truthOf(v.absent() != p.negated), err
}

// test reports a user property that is null as there; a system property that is
// null was not set.
func (p exists) test(m Message) (truth, error) {
	v, err := p.of.eval(m)
	if _, sys := p.of.(sysProperty); sys {
		return truthOf(!v.absent()), err
	}
	return truthOf(v.kind != Unknown), err
}

// test is what a = x OR a = y OR … would be.
func (p in) test(m Message) (truth, error) {
	a, err := p.a.eval(m)
	if err != nil || a.absent() {
		return unknown, err
	}
	result := isFalse
	for _, e := range p.list {
		b, err := e.eval(m)
		if err != nil {
			return unknown, err
		}
		switch equal.compare(a, b) {
		case isTrue:
			return truthOf(!p.negated), nil
		case unknown:
			result = unknown
		}
	}
	if p.negated {
		result = result.not()
	}
	return result, nil
}

func (p like) test(m Message) (truth, error) {
	a, err := p.a.eval(m)
	if err != nil || a.absent() {
		return unknown, err
	}
	ready := p.ready
	if ready == nil {
		if ready, err = p.compile(m); err != nil || ready == nil {
			return unknown, err
		}
	}
	if a.kind != String {
		return unknown, nil
	}
	return truthOf(ready.match(a.s) != p.negated), nil
}

// compile works the pattern out. nil stands for one that is unknown.
func (p like) compile(m Message) (pattern, error) {
	text, err := p.pattern.eval(m)
	switch {
	case err != nil || text.absent():
		return nil, err
	case text.kind != String:
		return nil, evalErrorf("the pattern of LIKE is %s, not a string", text.kind)
	}
	escape := rune(-1)
	if p.escape != nil {
		e, err := p.escape.eval(m)
		if err != nil || e.absent() {
			return nil, err
		}
		if e.kind != String || utf8.RuneCountInString(e.s) != 1 {
			return nil, evalErrorf("the escape of LIKE is no single character")
		}
		escape, _ = utf8.DecodeRuneInString(e.s)
	}
	return parsePattern(text.s, escape)
}
