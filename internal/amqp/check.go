// SPDX-License-Identifier: Apache-2.0

package amqp

import (
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
