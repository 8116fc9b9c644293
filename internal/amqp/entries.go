// SPDX-License-Identifier: Apache-2.0

package amqp

import "iter"

// Entries yields the entries of a map whose keys are text, in order. One bad value must not hide
// the others from a listing of messages. So a symbol keeps its bytes, ASCII or not, as a key and as
// a value, and any other value that Value refuses comes as Raw. A nil raw is an empty map, and
// entries after one whose end is unknown are omitted.
func Entries(raw Raw) iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		if raw == nil {
			return
		}
		r := NewReader(raw)
		pairs, n := r.Map()
		for range n {
			if !pairs.IsText() {
				pairs.Skip()
				pairs.Skip()
				continue
			}
			key, value := string(pairs.StringBytes()), pairs.Raw()
			if pairs.err != nil || !yield(key, lenient(value)) {
				return
			}
		}
	}
}

// lenient returns the value of raw. If Value refuses it, that is a Symbol with its bytes or a copy
// of raw.
func lenient(raw Raw) any {
	r := NewReader(raw)
	if v := r.Value(); r.err == nil {
		return v
	}
	switch r = NewReader(raw); r.Next() {
	case codeSymbol8, codeSymbol32:
		return Symbol(r.StringBytes())
	}
	return append(Raw(nil), raw...)
}
