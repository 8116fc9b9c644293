// SPDX-License-Identifier: Apache-2.0

package amqp

import "iter"

// MapLookup finds the value of the first pair whose key is the string or symbol key, and returns a
// Reader over that value alone. It decodes and allocates nothing. It reports false if raw is nil,
// no such pair is there, or the map is malformed before it.
func MapLookup(raw Raw, key string) (Reader, bool) {
	if len(raw) == 0 { // to find nothing must not cost the making of an error
		return Reader{}, false
	}
	r := NewReader(raw)
	sub, n := r.Map()
	for ; n > 0 && sub.err == nil; n-- {
		if sub.isKey(key) {
			v := sub.Raw()
			return Reader{b: v}, sub.err == nil
		}
		sub.Skip()
	}
	return Reader{}, false
}

// isKey consumes a key and compares it.
func (r *Reader) isKey(key string) bool {
	switch r.Next() {
	case codeString8, codeString32, codeSymbol8, codeSymbol32:
		return string(r.StringBytes()) == key && r.err == nil
	}
	r.Skip()
	return false
}

// ListField finds element i of a list, such as a field of Message.Properties, and returns a Reader
// over that value alone. It reports false if raw is nil, the list is shorter, the element is null,
// or the list is malformed before it.
func ListField(raw Raw, i int) (Reader, bool) {
	if len(raw) == 0 { // to find nothing must not cost the making of an error
		return Reader{}, false
	}
	r := NewReader(raw)
	sub, n := r.List()
	if i < 0 || i >= n {
		return Reader{}, false
	}
	for range i {
		sub.Skip()
	}
	if sub.Null() {
		return Reader{}, false
	}
	v := sub.Raw()
	return Reader{b: v}, sub.err == nil
}

// OverlayMap appends the map base with the pairs of over set. Pairs of base whose string or symbol
// key is also in over are left out, the others are copied as they are. A nil base is an empty one.
// On an error, which wraps ErrMalformed or ErrUnencodable, it returns dst unchanged.
func OverlayMap(dst []byte, base Raw, over Map) ([]byte, error) {
	out, start := BeginMap(dst)
	pairs := 0
	if base != nil {
		r := NewReader(base)
		sub, n := r.Map()
		for range n {
			pair := sub.b
			replaced := sub.isAnyKey(over)
			sub.Skip()
			if sub.err == nil && !replaced {
				out = append(out, pair[:len(pair)-len(sub.b)]...)
				pairs++
			}
		}
		if r.leave(&sub); r.err != nil {
			return dst, r.err
		}
	}
	for _, p := range over {
		var err error
		if out, err = appendPair(out, p); err != nil {
			return dst, err
		}
	}
	return EndMap(out, start, pairs+len(over)), nil
}

// isAnyKey consumes a key and reports whether it is one of m's.
func (r *Reader) isAnyKey(m Map) bool {
	switch r.Next() {
	case codeString8, codeString32, codeSymbol8, codeSymbol32:
		key := r.StringBytes()
		for i := range m {
			switch k := m[i].Key.(type) {
			case string:
				if k == string(key) {
					return true
				}
			case Symbol:
				if string(k) == string(key) {
					return true
				}
			}
		}
		return false
	}
	r.Skip()
	return false
}

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
