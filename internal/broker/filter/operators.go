// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"cmp"
	"math"
	"unicode/utf8"

	"github.com/cockroachdb/apd/v3"
)

// truth is what a predicate comes to.
type truth int8

const (
	unknown truth = iota
	isFalse
	isTrue
)

func truthOf(b bool) truth {
	if b {
		return isTrue
	}
	return isFalse
}

func (t truth) not() truth {
	switch t {
	case isTrue:
		return isFalse
	case isFalse:
		return isTrue
	}
	return unknown
}

// A comparison is an operator that compares.
type comparison uint8

const (
	equal comparison = iota
	notEqual
	less
	lessEqual
	greater
	greaterEqual
)

var comparisons = [...]string{"=", "<>", "<", "<=", ">", ">="}

// compare compares two values. Values that do not compare are unknown: NULL, a missing value, types
// of different families, and the order of values that have none.
func (op comparison) compare(a, b Value) truth {
	switch {
	case a.absent() || b.absent():
		return unknown
	case a.numeric() && b.numeric():
		return op.compareNumbers(a, b)
	case a.kind != b.kind:
		return unknown
	}
	switch a.kind {
	case String:
		return op.holds(cmp.Compare(a.s, b.s))
	case Time, Duration:
		return op.holds(cmp.Compare(int64(a.n), int64(b.n)))
	case Bool, GUID:
		same := a.n == b.n && a.m == b.m
		switch op {
		case equal:
			return truthOf(same)
		case notEqual:
			return truthOf(!same)
		}
	}
	return unknown
}

// compareNumbers compares as C# does: integers and decimals exactly, and everything as
// floats as soon as there is one.
func (op comparison) compareNumbers(a, b Value) truth {
	switch {
	case a.kind == Int && b.kind == Int:
		return op.holds(cmp.Compare(int64(a.n), int64(b.n)))
	case a.kind == Float || b.kind == Float:
		x, y := a.float(), b.float()
		if x != x || y != y { // NaN
			return truthOf(op == notEqual)
		}
		return op.holds(cmp.Compare(x, y))
	case a.kind == Decimal || b.kind == Decimal:
		return op.holds(a.decimal().Cmp(b.decimal()))
	case a.kind == b.kind:
		return op.holds(cmp.Compare(a.n, b.n))
	case a.kind == Uint: // which is above every Int
		return op.holds(1)
	}
	return op.holds(-1)
}

// holds reports whether the operator is true of two values in that order.
func (op comparison) holds(order int) truth {
	switch op {
	case equal:
		return truthOf(order == 0)
	case notEqual:
		return truthOf(order != 0)
	case less:
		return truthOf(order < 0)
	case lessEqual:
		return truthOf(order <= 0)
	case greater:
		return truthOf(order > 0)
	}
	return truthOf(order >= 0)
}

// calculate applies + - * / %. The result of what is absent is unknown.
func calculate(op byte, a, b Value) (Value, error) {
	switch {
	case a.absent() || b.absent():
		return Value{}, nil
	case a.kind == Int && b.kind == Int:
		return calculateInts(op, a.Int(), b.Int())
	case (a.kind == Decimal || b.kind == Decimal) && a.kind != Float && b.kind != Float && a.numeric() && b.numeric():
		return calculateDecimals(op, a.decimal(), b.decimal())
	case a.numeric() && b.numeric():
		return FloatValue(calculateFloats(op, a.float(), b.float())), nil
	case op == '+' && (a.kind == String || b.kind == String):
		return concatenate(a, b)
	}
	n, m := int64(a.n), int64(b.n)
	switch {
	case a.kind == Time && b.kind == Time && op == '-':
		return Value{kind: Duration, n: uint64(n - m)}, nil
	case (a.kind == Time || a.kind == Duration) && b.kind == Duration && op == '+':
		return Value{kind: a.kind, n: uint64(n + m)}, nil
	case (a.kind == Time || a.kind == Duration) && b.kind == Duration && op == '-':
		return Value{kind: a.kind, n: uint64(n - m)}, nil
	}
	return Value{}, evalErrorf("the operator %c does not apply to %s and %s", op, a.kind, b.kind)
}

func calculateInts(op byte, a, b int64) (Value, error) {
	switch op {
	case '+':
		return IntValue(a + b), nil
	case '-':
		return IntValue(a - b), nil
	case '*':
		return IntValue(a * b), nil
	}
	if b == 0 {
		return Value{}, evalErrorf("an integer is divided by zero")
	}
	if op == '/' {
		return IntValue(a / b), nil
	}
	return IntValue(a % b), nil
}

func calculateFloats(op byte, a, b float64) float64 {
	switch op {
	case '+':
		return a + b
	case '-':
		return a - b
	case '*':
		return a * b
	case '/':
		return a / b
	}
	return math.Mod(a, b)
}

func concatenate(a, b Value) (Value, error) {
	x, ok := a.format()
	y, also := b.format()
	switch {
	case !ok || !also:
		return Value{}, evalErrorf("the operator + does not apply to %s and %s", a.kind, b.kind)
	case len(x)+len(y) > maxText:
		return Value{}, evalErrorf("the operator + makes a string of more than %d bytes", maxText)
	}
	return StringValue(x + y), nil
}

// negate applies a minus sign.
func negate(v Value) (Value, error) {
	switch v.kind {
	case Unknown, Null:
		return Value{}, nil
	case Int, Duration:
		return Value{kind: v.kind, n: -v.n}, nil
	case Float, Uint:
		return FloatValue(-v.float()), nil
	case Decimal:
		return DecimalValue(new(apd.Decimal).Neg(v.d)), nil
	}
	return Value{}, evalErrorf("a sign does not apply to %s", v.kind)
}

// A pattern is what LIKE compares with, by characters.
type pattern []rune

// A percent sign stands for any text, and an underscore for any character.
const (
	anyText rune = -1 - iota
	anyRune
)

// parsePattern reads a pattern. escape is negative where there is none.
func parsePattern(s string, escape rune) (pattern, error) {
	p, escaped := pattern{}, false
	for _, r := range s {
		switch {
		case escaped:
			p, escaped = append(p, r), false
		case r == escape:
			escaped = true
		case r == '%':
			p = append(p, anyText)
		case r == '_':
			p = append(p, anyRune)
		default:
			p = append(p, r)
		}
	}
	if escaped {
		return nil, evalErrorf("the pattern of LIKE ends with its escape character")
	}
	return p, nil
}

// match reports whether the whole of text fits. The first text that fits between two percent signs
// will do, so only the latest of them is tried with more text. The steps are at most the characters
// of the text times those of the pattern.
func (p pattern) match(text string) bool {
	at, behind, retry := 0, -1, "" // behind the latest anyText, and the text there
	for text != "" {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case at < len(p) && p[at] == anyText:
			at++
			behind, retry = at, text
		case at < len(p) && (p[at] == anyRune || p[at] == r):
			at++
			text = text[size:]
		case behind >= 0:
			_, size = utf8.DecodeRuneInString(retry)
			retry = retry[size:]
			at, text = behind, retry
		default:
			return false
		}
	}
	for at < len(p) && p[at] == anyText {
		at++
	}
	return at == len(p)
}
