// SPDX-License-Identifier: Apache-2.0

package filter

import "fmt"

// An Action is a list of SET and REMOVE, ready to be applied to messages.
type Action struct{ statements []statement }

// A statement sets a property, or removes it where value is nil.
type statement struct {
	property expression // userProperty or sysProperty
	value    expression
}

// ParseAction reads an action of at most [MaxLength] characters and
// [MaxStatements]. Semicolons or
// commas between its statements may be left out. params are those of
// [ParseFilter]. The error is a [*SyntaxError].
func ParseAction(text string, params map[string]Value) (*Action, error) {
	return parseAction(text, params, MaxLength)
}

func parseAction(text string, params map[string]Value, most int) (*Action, error) {
	p := newParser(text, params, most)
	p.action = true
	a := &Action{}
	for p.err == nil {
		if len(a.statements) == MaxStatements {
			p.fail(fmt.Sprintf("at most %d statements", MaxStatements))
		}
		a.statements = append(a.statements, p.statement())
		if !p.accept(";") {
			p.accept(",")
		}
		if p.tok.kind == tokenEnd {
			break
		}
	}
	if p.err != nil {
		return nil, p.err
	}
	return a, nil
}

func (p *parser) statement() statement {
	switch {
	case p.accept("SET"):
		target := p.target()
		p.expect("=")
		return statement{target, p.expression(p.sum())}
	case p.accept("REMOVE"):
		return statement{property: p.target()}
	}
	p.fail("SET or REMOVE")
	return statement{}
}

// target reads a property that can be changed.
func (p *parser) target() expression {
	start := p.tok
	e := p.property()
	switch e := e.(type) {
	case userProperty:
		return e
	case sysProperty:
		if sysProperties[e.p].settable {
			return e
		}
	}
	p.tok = start
	p.fail("a property that can be changed")
	return e
}

// Apply carries the statements out, in their order. The error is an
// [*EvalError] or one of m; what came before it has been done.
func (a *Action) Apply(m Mutable) error {
	for _, s := range a.statements {
		if err := s.apply(m); err != nil {
			return err
		}
	}
	return nil
}

func (s statement) apply(m Mutable) error {
	v := NullValue()
	if s.value != nil {
		var err error
		if v, err = s.value.eval(m); err != nil {
			return err
		}
		if v.kind == Unknown { // what was computed from what does not exist
			v = NullValue()
		}
	}
	switch p := s.property.(type) {
	case sysProperty:
		as, ok := v.Convert(p.p.Kind())
		if !ok {
			return evalErrorf("sys.%s cannot be set to %s", p.p, v.kind)
		}
		return m.SetSys(p.p, as.From(nil))
	case userProperty:
		if s.value == nil {
			m.RemoveUser(p.name)
			return nil
		}
		// The type that the property has is kept where it can be.
		if old := m.User(p.name); !old.absent() {
			if as, ok := v.Convert(old.kind); ok {
				v = as
			}
		}
		m.SetUser(p.name, v)
	}
	return nil
}
