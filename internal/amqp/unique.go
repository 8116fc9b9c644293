// SPDX-License-Identifier: Apache-2.0

package amqp

import "bytes"

// fewKeys is how many keys of a map are compared without an allocation. Messages of clients have
// fewer.
const fewKeys = 64

// A mapKey is the key of a map in a form to compare: a string and a symbol with the same text are
// one key, as in MapLookup.
type mapKey struct {
	sum    uint32
	isText bool
	bytes  []byte // the text, or the encoded value
}

// RepeatedKey returns a key that a map states more than once. One reader may find the first value
// and another reader the second, so endpoints refuse such a map. It reports false if raw is not a
// map, and allocates nothing for a map of at most 64 keys.
func RepeatedKey(raw Raw) (key []byte, repeated bool) {
	if len(raw) == 0 {
		return nil, false
	}
	r := NewReader(raw)
	switch r.Next() {
	case codeMap8, codeMap32:
	default:
		return nil, false
	}
	pairs, n := r.Map()
	if n < 2 {
		return nil, false
	}
	return pairs.repeated(n)
}

// repeated reads n pairs.
func (r *Reader) repeated(n int) (key []byte, repeated bool) {
	var few [fewKeys]mapKey
	var many map[string]bool // by prefixed text
	for i := 0; i < n && r.err == nil; i++ {
		k := r.mapKey()
		r.Skip()
		if i < fewKeys {
			for j := range few[:i] {
				if few[j].sum == k.sum && few[j].isText == k.isText && bytes.Equal(few[j].bytes, k.bytes) {
					return k.bytes, true
				}
			}
			few[i] = k
			continue
		}
		if many == nil {
			many = make(map[string]bool, n)
			for j := range few {
				many[few[j].name()] = true
			}
		}
		if name := k.name(); many[name] {
			return k.bytes, true
		} else if r.err == nil {
			many[name] = true
		}
	}
	return nil, false
}

func (r *Reader) mapKey() (k mapKey) {
	switch r.Next() {
	case codeString8, codeString32, codeSymbol8, codeSymbol32:
		k.isText, k.bytes = true, r.StringBytes()
	default:
		k.bytes = r.Raw()
	}
	// It only has to distinguish most keys without reading them again.
	for _, c := range k.bytes {
		k.sum = k.sum*31 + uint32(c)
	}
	return k
}

// name is the key in the form of a Go map key.
func (k *mapKey) name() string {
	if k.isText {
		return "t" + string(k.bytes)
	}
	return "v" + string(k.bytes)
}

// RepeatedKeyWithin is RepeatedKey for a value and everything within it: maps in maps, lists and
// arrays. A value that is nested deeper than MaxDepth counts as repeated.
func RepeatedKeyWithin(raw Raw) (key []byte, repeated bool) {
	r := NewReader(raw)
	return r.repeatedWithin(0)
}

// repeatedWithin consumes one value.
func (r *Reader) repeatedWithin(depth int) (key []byte, repeated bool) {
	if depth > MaxDepth {
		return []byte("?"), true
	}
	v := r.Raw()
	if r.err != nil || len(v) == 0 {
		return nil, false
	}
	in := NewReader(v)
	if in.Next() == 0 { // described
		d := in.descriptor()
		d.Skip()
		in.afterDescriptor(d)
		return in.repeatedWithin(depth + 1)
	}
	var sub Reader
	n := 0
	switch in.Next() {
	case codeMap8, codeMap32:
		if key, repeated = RepeatedKey(v); repeated {
			return key, true
		}
		sub, n = in.Map()
		n *= 2
	case codeList8, codeList32:
		sub, n = in.List()
	case codeArray8, codeArray32:
		if sub, n = in.Array(); len(sub.ctor) == 1 && forms[sub.ctor[0]].count == 0 {
			n = 0 // of an empty value
		}
	}
	for i := 0; i < n && sub.err == nil; i++ {
		if key, repeated = sub.repeatedWithin(depth + 1); repeated {
			return key, true
		}
	}
	return nil, false
}
