// SPDX-License-Identifier: Apache-2.0

package amqp

import (
	"encoding/binary"
	"math"
)

// fixed consumes a value of one of the constructors a and b, which share a type; each says how many
// bytes follow it. It returns these as an unsigned number, and the constructor.
func (r *Reader) fixed(a, b byte) (uint64, byte) {
	c := r.code()
	if c != a && c != b {
		r.wrongOrTruncated(a, c)
		return 0, 0
	}
	v := r.take(uint64(forms[c].fixed))
	switch len(v) {
	case 1:
		return uint64(v[0]), c
	case 2:
		return uint64(binary.BigEndian.Uint16(v)), c
	case 4:
		return uint64(binary.BigEndian.Uint32(v)), c
	case 8:
		return binary.BigEndian.Uint64(v), c
	}
	return 0, 0
}

// whole is fixed for a type that has one constructor.
func (r *Reader) whole(c byte) uint64 {
	v, _ := r.fixed(c, c)
	return v
}

// wrongOrTruncated reports the type error, unless code has reported the end of the input.
func (r *Reader) wrongOrTruncated(want, got byte) {
	if r.err == nil {
		r.wrong(forms[want].name, got)
	}
}

// Bool consumes a boolean.
func (r *Reader) Bool() bool {
	switch c := r.code(); c {
	case codeTrue:
		return r.err == nil
	case codeFalse:
		return false
	case codeBool:
		v := r.take(1)
		if r.err == nil && v[0] > 1 {
			r.failf("boolean of value %d", v[0])
		}
		return r.err == nil && v[0] == 1
	default:
		r.wrongOrTruncated(codeBool, c)
		return false
	}
}

// Ubyte consumes a ubyte.
func (r *Reader) Ubyte() uint8 { return uint8(r.whole(codeUbyte)) }

// Ushort consumes a ushort.
func (r *Reader) Ushort() uint16 { return uint16(r.whole(codeUshort)) }

// Uint consumes a uint.
func (r *Reader) Uint() uint32 {
	if r.Next() == codeUint0 {
		r.code()
		return 0
	}
	v, _ := r.fixed(codeUint, codeSmallUint)
	return uint32(v)
}

// Ulong consumes a ulong.
func (r *Reader) Ulong() uint64 {
	if r.Next() == codeUlong0 {
		r.code()
		return 0
	}
	v, _ := r.fixed(codeUlong, codeSmallUlong)
	return v
}

// Int consumes an int.
func (r *Reader) Int() int32 {
	v, c := r.fixed(codeInt, codeSmallInt)
	if c == codeSmallInt {
		return int32(int8(v))
	}
	return int32(v)
}

// Long consumes a long.
func (r *Reader) Long() int64 {
	v, c := r.fixed(codeLong, codeSmallLong)
	if c == codeSmallLong {
		return int64(int8(v))
	}
	return int64(v)
}

// Integer consumes an integer of any of the eight types, for fields that peers do not agree on. A
// ulong above the largest int64 is an error.
func (r *Reader) Integer() int64 {
	switch r.Next() {
	case codeUbyte:
		return int64(r.Ubyte())
	case codeUshort:
		return int64(r.Ushort())
	case codeUint, codeSmallUint, codeUint0:
		return int64(r.Uint())
	case codeByte:
		return int64(int8(r.whole(codeByte)))
	case codeShort:
		return int64(int16(r.whole(codeShort)))
	case codeInt, codeSmallInt:
		return int64(r.Int())
	case codeLong, codeSmallLong:
		return r.Long()
	case codeUlong, codeSmallUlong, codeUlong0:
		v := r.Ulong()
		if v > math.MaxInt64 {
			r.failf("integer %d is too large", v)
			return 0
		}
		return int64(v)
	}
	if c := r.code(); r.err == nil {
		r.wrong("integer", c)
	}
	return 0
}

// Timestamp consumes a timestamp.
func (r *Reader) Timestamp() Timestamp { return Timestamp(r.whole(codeTimestamp)) }

// UUID consumes a uuid.
func (r *Reader) UUID() (u UUID) {
	r.octets(codeUUID, u[:])
	return u
}

// octets consumes a value of the constructor want, which has as many bytes as to.
func (r *Reader) octets(want byte, to []byte) {
	if c := r.code(); c != want {
		r.wrongOrTruncated(want, c)
		return
	}
	copy(to, r.take(uint64(len(to))))
}
