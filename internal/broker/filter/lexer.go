// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

type tokenKind uint8

const (
	tokenEnd     tokenKind = iota
	tokenWord              // identifier or keyword
	tokenName              // [identifier] or "identifier"
	tokenInteger           //
	tokenFloat             //
	tokenString            //
	tokenParam             // @name, without the @
	tokenSign              // operator, parenthesis, comma, …
	tokenBroken            // what is no token; text says what was expected
)

type token struct {
	kind tokenKind
	text string // names and strings without their marks
	pos  int    // in characters, from 1
	raw  string // as it stands
}

// is reports whether t is that keyword or sign.
func (t token) is(text string) bool {
	return t.kind == tokenSign && t.text == text || t.kind == tokenWord && strings.EqualFold(t.text, text)
}

// found names t in an error.
func (t token) found() string {
	if t.kind == tokenEnd {
		return "the end"
	}
	raw := t.raw
	if utf8.RuneCountInString(raw) > 20 {
		raw = string([]rune(raw)[:20]) + "…"
	}
	return raw
}

// A lexer takes an expression apart.
type lexer struct {
	rest string
	pos  int // of rest, in characters from 1
}

// take cuts n bytes off as a token.
func (l *lexer) take(kind tokenKind, n int) token {
	t := token{kind, l.rest[:n], l.pos, l.rest[:n]}
	l.rest = l.rest[n:]
	l.pos += utf8.RuneCountInString(t.raw)
	return t
}

// broken is a token that ends everything.
func (l *lexer) broken(expected string, n int) token {
	t := l.take(tokenBroken, n)
	t.text = expected
	return t
}

func (l *lexer) next() token {
	space := len(l.rest) - len(strings.TrimLeftFunc(l.rest, unicode.IsSpace))
	l.take(tokenEnd, space)
	if l.rest == "" {
		return token{kind: tokenEnd, pos: l.pos}
	}
	switch c := l.rest[0]; c {
	case '\'', '"':
		return l.quoted(c)
	case '[':
		return l.quoted(']')
	case '@':
		n := word(l.rest[1:])
		if n == 0 {
			return l.broken("the name of a parameter behind @", 1)
		}
		t := l.take(tokenParam, 1+n)
		t.text = t.raw[1:]
		return t
	case '<', '>', '!':
		if two := l.rest[:min(2, len(l.rest))]; two == "<>" || two == "<=" || two == ">=" || two == "!=" {
			return l.take(tokenSign, 2)
		} else if c == '!' {
			return l.broken("!=", 1)
		}
		return l.take(tokenSign, 1)
	case '=', '+', '-', '*', '/', '%', '(', ')', ',', '.', ';':
		return l.take(tokenSign, 1)
	}
	if isDigit(l.rest[0]) {
		return l.number()
	}
	if n := word(l.rest); n > 0 {
		return l.take(tokenWord, n)
	}
	_, size := utf8.DecodeRuneInString(l.rest)
	return l.broken("a property, a constant or an operator", size)
}

// quoted reads up to the mark that closes; one that is doubled stands for itself.
func (l *lexer) quoted(mark byte) token {
	end := 1
	for {
		i := strings.IndexByte(l.rest[end:], mark)
		if i < 0 {
			return l.broken("a closing "+string(mark), len(l.rest))
		}
		if end += i + 1; end == len(l.rest) || l.rest[end] != mark {
			break
		}
		end++
	}
	kind := tokenName
	if mark == '\'' {
		kind = tokenString
	} else if end == 2 {
		return l.broken("a name between the marks", end)
	}
	t := l.take(kind, end)
	t.text = strings.ReplaceAll(t.raw[1:end-1], string(mark)+string(mark), string(mark))
	return t
}

// number reads 1, 1.5, 1E5 and 1.5E-5.
func (l *lexer) number() token {
	n, kind := digits(l.rest), tokenInteger
	if strings.HasPrefix(l.rest[n:], ".") {
		d := digits(l.rest[n+1:])
		if d == 0 {
			return l.broken("a digit behind the point", n+1)
		}
		n, kind = n+1+d, tokenFloat
	}
	if n < len(l.rest) && l.rest[n]|0x20 == 'e' {
		e := n + 1
		if e < len(l.rest) && (l.rest[e] == '+' || l.rest[e] == '-') {
			e++
		}
		d := digits(l.rest[e:])
		if d == 0 {
			return l.broken("an exponent behind E", e)
		}
		n, kind = e+d, tokenFloat
	}
	if r, size := utf8.DecodeRuneInString(l.rest[n:]); inWord(r) {
		return l.broken("a number", n+size)
	}
	return l.take(kind, n)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func digits(s string) int {
	n := 0
	for n < len(s) && isDigit(s[n]) {
		n++
	}
	return n
}

func inWord(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }

// word returns how many bytes of s are an identifier.
func word(s string) int {
	for i, r := range s {
		if i == 0 && !unicode.IsLetter(r) {
			return 0
		}
		if !inWord(r) {
			return i
		}
	}
	return len(s)
}
