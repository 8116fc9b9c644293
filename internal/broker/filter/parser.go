// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"fmt"
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
