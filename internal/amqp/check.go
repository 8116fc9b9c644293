// SPDX-License-Identifier: Apache-2.0

package amqp

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// A broker must not store a message that its receivers cannot read: a field of a wrong type breaks
// every receiver that gets it, one after the other. These checks are stricter than ParseMessage,
// and allocate nothing for simple values.

// CheckProperties checks Message.Properties as DecodeProperties does, but without regard to order:
// it checks the types of the fields, and that there are no more of them than in the standard. A
// symbol passes for a string and a string for a symbol, because clients are careless there and
// receivers take both. nil is an empty section.
func CheckProperties(raw Raw) error {
	if raw == nil {
		return nil
	}
	r := NewReader(raw)
	f := fieldList(&r, "properties")
	if f.left > propertyFields {
		f.failf("properties of %d fields, there are %d", f.left, propertyFields)
	}
	for i := range propertyFields {
		if !f.has() {
			continue
		}
		switch i {
		case PropertyMessageID, PropertyCorrelationID:
			f.checkID()
		case PropertyUserID:
			f.Binary()
		case PropertyAbsoluteExpiryTime, PropertyCreationTime:
			f.Timestamp()
		case PropertyGroupSequence:
			f.Uint()
		default:
			f.checkText()
		}
	}
	if f.err == nil && len(f.b) > 0 {
		f.failf("%d bytes after the last field of properties", len(f.b))
	}
	return f.done(&r)
}

// checkID consumes a message-id or a correlation-id.
func (r *Reader) checkID() {
	switch c := r.Next(); c {
	case codeString8, codeString32:
		r.checkText()
	case codeUlong0, codeSmallUlong, codeUlong, codeUUID, codeBinary8, codeBinary32:
		r.Skip()
	default:
		r.wrong("message-id of type ulong, uuid, binary or string", c)
	}
}

// checkText consumes a string or a symbol.
func (r *Reader) checkText() {
	if b := r.StringBytes(); !utf8.Valid(b) {
		r.failf("string that is not UTF-8")
	}
}

// Check consumes one value and checks all of it, nested values included. Skip only uses its size.
// Beyond the standard, it refuses maps with keys that cannot be compared, lists for one: receivers
// put pairs into hash maps, and some panic.
func (r *Reader) Check() {
	switch c := r.Next(); {
	case c == codeString8 || c == codeString32:
		r.checkText()
	case c != codeDescribed && c != codeList0 && c < codeList8:
		r.Skip()
	default:
		v := r.Value()
		if r.err == nil {
			r.Fail(checkKeys(v))
		}
	}
}

// checkKeys finds keys that cannot be compared. Value has bounded the depth of v.
func checkKeys(v any) error {
	switch v := v.(type) {
	case Map:
		for _, p := range v {
			switch p.Key.(type) {
			case List, Map, Array, Described, []byte:
				return fmt.Errorf("%w: map with a key that is not a simple value", ErrMalformed)
			}
			if err := checkKeys(p.Value); err != nil {
				return err
			}
		}
	case List:
		return checkAll(v)
	case Array:
		return checkAll(v)
	case Described:
		return checkKeys(v.Value)
	}
	return nil
}

func checkAll(vs []any) error {
	for _, v := range vs {
		if err := checkKeys(v); err != nil {
			return err
		}
	}
	return nil
}

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
