// SPDX-License-Identifier: Apache-2.0

package amqp

import "unicode/utf8"

// Strings have to be UTF-8 and symbols ASCII, and they are checked where a string or a symbol is
// read. Skipped or sliced values are not checked: a relay passes on the bytes that it got.

// Binary consumes a binary. It aliases the input and is never nil unless there is an error.
func (r *Reader) Binary() []byte {
	switch c := r.code(); c {
	case codeBinary8, codeBinary32:
		return r.variable(forms[c].size)
	default:
		r.wrongOrTruncated(codeBinary8, c)
		return nil
	}
}

// String consumes a string, and allocates it. Anything but UTF-8 is an error.
func (r *Reader) String() string {
	switch c := r.code(); c {
	case codeString8, codeString32:
		b := r.variable(forms[c].size)
		if !utf8.Valid(b) {
			r.failf("string that is not UTF-8")
			return ""
		}
		return string(b)
	default:
		r.wrongOrTruncated(codeString8, c)
		return ""
	}
}

// Text consumes a string, or a symbol or a binary instead, and allocates it. Peers that do not keep
// types send those when they forward a message. Anything but UTF-8 is an error.
func (r *Reader) Text() string {
	switch r.Next() {
	case codeSymbol8, codeSymbol32:
		return string(r.Symbol())
	case codeBinary8, codeBinary32:
		b := r.Binary()
		if !utf8.Valid(b) {
			r.failf("binary instead of a string, not in UTF-8")
			return ""
		}
		return string(b)
	default:
		return r.String()
	}
}

// IsString reports whether the next value is a string.
func (r *Reader) IsString() bool {
	c := r.Next()
	return c == codeString8 || c == codeString32
}

// IsText reports whether the next value is a string or a symbol.
func (r *Reader) IsText() bool {
	switch r.Next() {
	case codeString8, codeString32, codeSymbol8, codeSymbol32:
		return true
	}
	return false
}

// StringBytes consumes a string or a symbol, for a comparison in place. It aliases the input, and
// its characters are not checked.
func (r *Reader) StringBytes() []byte {
	switch c := r.code(); c {
	case codeString8, codeString32, codeSymbol8, codeSymbol32:
		return r.variable(forms[c].size)
	default:
		r.wrongOrTruncated(codeString8, c)
		return nil
	}
}

// Symbol consumes a symbol, and allocates it. Anything but ASCII is an error.
func (r *Reader) Symbol() Symbol {
	b := r.symbolBytes()
	if r.err != nil {
		return ""
	}
	return Symbol(b)
}

func (r *Reader) symbolBytes() []byte {
	switch c := r.code(); c {
	case codeSymbol8, codeSymbol32:
		b := r.variable(forms[c].size)
		if !isASCII(b) {
			r.failf("symbol that is not ASCII")
			return nil
		}
		return b
	default:
		r.wrongOrTruncated(codeSymbol8, c)
		return nil
	}
}

// Symbols consumes a field that may hold several symbols: null, one symbol, or an array of them.
func (r *Reader) Symbols() []Symbol {
	switch r.Next() {
	case codeNull:
		r.code()
		return nil
	case codeArray8, codeArray32:
		sub, n := r.Array()
		all := make([]Symbol, 0, n)
		for range n {
			all = append(all, sub.Symbol())
		}
		if r.Fail(sub.err); r.err != nil {
			return nil
		}
		return all
	}
	one := r.Symbol()
	if r.err != nil {
		return nil
	}
	return []Symbol{one}
}

func isASCII[T string | Symbol | []byte](s T) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
