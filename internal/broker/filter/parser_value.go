// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"math"
	"strconv"
	"strings"
)

// The functions below are the grammar below predicates.

func (p *parser) sum() operand     { return p.binary("+-", p.product) }
func (p *parser) product() operand { return p.binary("*/%", p.sign) }

func (p *parser) binary(signs string, side func() operand) operand {
	left := side()
	for p.tok.kind == tokenSign && strings.Contains(signs, p.tok.text) {
		a, op := p.expression(left), p.tok.text[0]
		p.next()
		left = operand{expression: binaryOp{op, a, p.expression(side())}}
	}
	return left
}

// lowest is the only integer whose digits do not fit without its sign.
const lowest = "9223372036854775808"

func (p *parser) sign() operand {
	if !p.tok.is("-") && !p.tok.is("+") {
		return p.primary()
	}
	sign := p.tok.text[0]
	p.next()
	if sign == '-' && p.tok.kind == tokenInteger && p.tok.text == lowest {
		p.next()
		return operand{expression: constant{IntValue(math.MinInt64)}}
	}
	p.deeper()
	defer p.leave()
	return operand{expression: signed{sign, p.expression(p.sign())}}
}

func (p *parser) primary() operand {
	t := p.tok
	switch t.kind {
	case tokenString:
		p.next()
		return operand{expression: constant{StringValue(t.text)}}
	case tokenInteger, tokenFloat:
		return operand{expression: p.number()}
	case tokenParam:
		return operand{expression: p.parameter()}
	}
	switch {
	case t.is("("):
		return p.parentheses()
	case p.accept("NULL"):
		return operand{expression: constant{NullValue()}}
	case p.accept("TRUE"):
		return operand{expression: constant{BoolValue(true)}}
	case p.accept("FALSE"):
		return operand{expression: constant{BoolValue(false)}}
	}
	return operand{expression: p.property()}
}

func (p *parser) parentheses() operand {
	p.next()
	p.deeper()
	defer p.leave()
	inside := p.or
	if p.action {
		inside = p.sum
	}
	o := inside()
	p.expect(")")
	return o
}

func (p *parser) number() expression {
	var v Value
	var err error
	if p.tok.kind == tokenInteger {
		var n int64
		n, err = strconv.ParseInt(p.tok.text, 10, 64)
		v = IntValue(n)
	} else {
		var f float64
		f, err = strconv.ParseFloat(p.tok.text, 64)
		v = FloatValue(f)
	}
	if err != nil {
		p.fail("a number of 64 bits")
	}
	p.next()
	return constant{v}
}

// parameter looks a parameter up, whose key may have the @ or not.
func (p *parser) parameter() expression {
	name := p.tok.text
	for _, key := range [...]string{"@" + name, name} {
		if v, ok := p.params[key]; ok {
			p.next()
			return parameter{name, v}
		}
	}
	for key, v := range p.params {
		if strings.EqualFold(strings.TrimPrefix(key, "@"), name) {
			p.next()
			return parameter{name, v}
		}
	}
	p.fail("a parameter that has a value")
	return nil
}

// property reads a property or a function.
func (p *parser) property() expression {
	name := p.tok
	switch {
	case name.kind == tokenName:
	case name.kind != tokenWord:
		p.fail("a property or a constant")
	case reserved(name.text) && (p.action || !name.is("SET") && !name.is("REMOVE")):
		p.fail("a property or a constant; in brackets a keyword can be the name of one")
	}
	p.next()
	switch {
	case name.kind == tokenWord && p.tok.is("("):
		return p.function(name)
	case !p.accept("."):
		return userProperty{name.text}
	}
	own := p.tok
	if own.kind != tokenName && own.kind != tokenWord {
		p.fail("the name of a property")
	}
	switch {
	case strings.EqualFold(name.text, "user"):
		p.next()
		return userProperty{own.text}
	case strings.EqualFold(name.text, "sys"):
		sys, known := sysPropertyOf(own.text)
		if !known {
			p.fail("a system property, such as MessageId, CorrelationId, Label, To, ReplyTo, SessionId or ContentType")
		}
		p.next()
		return sysProperty{sys}
	}
	p.tok = name
	p.fail("the scope sys or user; in brackets a name can hold a point")
	return nil
}

func (p *parser) function(name token) expression {
	switch {
	case name.is("newid"):
		p.next()
		p.expect(")")
		return newID{}
	case name.is("property"), name.is("p"):
		p.next()
		p.deeper()
		defer p.leave()
		e := propertyOf{p.expression(p.sum())}
		p.expect(")")
		return e
	}
	p.tok = name
	p.fail("one of the functions newid, property and p")
	return nil
}
