// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A parser goes down the grammar. After the first error it sees nothing but the
// end, so that every rule can go on as if nothing had happened.
type parser struct {
	lexer  lexer
	tok    token
	params map[string]Value
	depth  int
	action bool // there are no predicates in one
	err    error
}

// An operand is an expression or a predicate, the other is nil. In parentheses
// only what comes behind them tells which it is.
type operand struct {
	expression expression
	predicate  predicate
}

var keywords = [...]string{"AND", "OR", "NOT", "LIKE", "IN", "IS", "NULL", "EXISTS", "ESCAPE", "TRUE", "FALSE", "SET", "REMOVE"}

// reserved reports whether a name needs marks.
func reserved(name string) bool {
	for _, k := range keywords {
		if strings.EqualFold(name, k) {
			return true
		}
	}
	return false
}

// newParser begins. most bounds the characters: [MaxLength], but in tests that parse what they
// have printed, which may be longer than what it came from.
func newParser(text string, params map[string]Value, most int) *parser {
	p := &parser{lexer: lexer{rest: text, pos: 1}, params: params}
	switch n := utf8.RuneCountInString(text); {
	case n > most:
		p.err = &SyntaxError{most + 1, fmt.Sprintf("at most %d characters", most), fmt.Sprintf("%d", n)}
	case !utf8.ValidString(text):
		p.err = &SyntaxError{1, "UTF-8", "other bytes"}
	default:
		p.next()
	}
	return p
}

func (p *parser) next() {
	p.tok = p.lexer.next()
	if p.tok.kind == tokenBroken {
		p.fail(p.tok.text)
	}
}

// fail notes that something else was expected than the token in hand.
func (p *parser) fail(expected string) {
	if p.err == nil {
		p.err = &SyntaxError{p.tok.pos, expected, p.tok.found()}
	}
	p.lexer.rest, p.tok = "", token{}
}

// accept consumes a keyword or sign, if it is the next token.
func (p *parser) accept(text string) bool {
	if !p.tok.is(text) {
		return false
	}
	p.next()
	return true
}

func (p *parser) expect(text string) {
	if !p.accept(text) {
		p.fail(text)
	}
}

// deeper enters a level of nesting, which leave ends.
func (p *parser) deeper() {
	if p.depth++; p.depth > MaxDepth {
		p.fail(fmt.Sprintf("at most %d levels of nesting", MaxDepth))
	}
}

func (p *parser) leave() { p.depth-- }

// predicate makes o one, begun at the token at.
func (p *parser) predicate(o operand) predicate {
	if o.predicate != nil || p.err != nil {
		return o.predicate
	}
	switch e := o.expression.(type) {
	case userProperty, sysProperty, parameter, propertyOf:
		return truthy{o.expression}
	case constant:
		if e.value.kind == Bool {
			return truthy{e}
		}
	}
	p.fail("a comparison")
	return nil
}

// expression makes sure that o is one.
func (p *parser) expression(o operand) expression {
	if o.expression == nil {
		p.fail("AND, OR or the end behind a predicate")
	}
	return o.expression
}

func (p *parser) or() operand  { return p.logic("OR", isTrue, p.and) }
func (p *parser) and() operand { return p.logic("AND", isFalse, p.not) }

func (p *parser) logic(keyword string, op truth, side func() operand) operand {
	left := side()
	for p.tok.is(keyword) {
		a := p.predicate(left)
		p.next()
		left = operand{predicate: logic{op, a, p.predicate(side())}}
	}
	return left
}

func (p *parser) not() operand {
	if !p.accept("NOT") {
		return p.compare()
	}
	p.deeper()
	defer p.leave()
	return operand{predicate: not{p.predicate(p.not())}}
}

func (p *parser) compare() operand {
	if p.accept("EXISTS") {
		p.expect("(")
		e := p.property()
		p.expect(")")
		return operand{predicate: exists{e}}
	}
	left := p.sum()
	for op, sign := range comparisons {
		if p.tok.is(sign) || op == int(notEqual) && p.tok.is("!=") {
			a := p.expression(left)
			p.next()
			return operand{predicate: compare{comparison(op), a, p.expression(p.sum())}}
		}
	}
	switch {
	case p.tok.is("IS"):
		return p.isNull(left)
	case p.accept("NOT"):
		return p.inOrLike(left, true)
	case p.tok.is("IN"), p.tok.is("LIKE"):
		return p.inOrLike(left, false)
	}
	return left
}

func (p *parser) isNull(left operand) operand {
	switch left.expression.(type) {
	case userProperty, sysProperty, propertyOf:
	default:
		p.fail("a property before IS")
	}
	p.next()
	negated := p.accept("NOT")
	p.expect("NULL")
	return operand{predicate: isNull{left.expression, negated}}
}

func (p *parser) inOrLike(left operand, negated bool) operand {
	a := p.expression(left)
	if p.accept("LIKE") {
		return operand{predicate: p.like(a, negated)}
	}
	if !p.accept("IN") {
		p.fail("IN or LIKE")
	}
	p.expect("(")
	list := []expression{p.expression(p.sum())}
	for p.accept(",") {
		list = append(list, p.expression(p.sum()))
	}
	p.expect(")")
	return operand{predicate: in{a, list, negated}}
}

// like works out once what does not depend on the message.
func (p *parser) like(a expression, negated bool) predicate {
	start := p.tok
	l := like{a: a, negated: negated, pattern: p.expression(p.sum())}
	if p.accept("ESCAPE") {
		l.escape = p.expression(p.sum())
	}
	if p.err != nil || !fixed(l.pattern) || l.escape != nil && !fixed(l.escape) {
		return l
	}
	ready, err := l.compile(nil)
	if err != nil {
		p.err = &SyntaxError{start.pos, "a pattern", err.Error()}
		p.fail("")
	}
	l.ready = ready
	return l
}

// fixed reports whether e is the same for every message.
func fixed(e expression) bool {
	switch e.(type) {
	case constant, parameter:
		return true
	}
	return false
}

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
