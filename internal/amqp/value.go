// SPDX-License-Identifier: Apache-2.0

package amqp

import (
	"bytes"
	"math"
	"unicode/utf8"
)

// few is how many stated elements are allocated without counting them first.
const few = 16

// Empty composites are shared: they cost a peer one byte and would cost us forty.
var emptyList, emptyMap, emptyArray any = List{}, Map{}, Array{}

// Value consumes one value of any type and returns it as one of the types that types.go lists,
// never Raw. It shares no memory with the input. Nesting beyond MaxDepth is an error, and so is a
// list, map or array whose bytes do not end with its last element.
//
// Value allocates at most 20 times the bytes it reads, and 8 KiB.
func (r *Reader) Value() any {
	in := values{zeros: MaxZeroWidth}
	v := in.value(r, 0)
	if r.err != nil {
		return nil
	}
	return v
}

// values reads a value with all that is nested in it.
type values struct {
	zeros int // elements without bytes that may follow
}

func (in *values) value(r *Reader, depth int) any {
	switch c := r.Next(); c {
	case codeDescribed:
		return in.described(r, depth)
	case codeNull:
		r.code()
		return nil
	case codeTrue, codeFalse, codeBool:
		return r.Bool()
	case codeUbyte:
		return r.Ubyte()
	case codeUshort:
		return r.Ushort()
	case codeUint0, codeSmallUint, codeUint:
		return r.Uint()
	case codeUlong0, codeSmallUlong, codeUlong:
		return r.Ulong()
	case codeByte:
		return int8(r.whole(c))
	case codeShort:
		return int16(r.whole(c))
	case codeSmallInt, codeInt:
		return r.Int()
	case codeSmallLong, codeLong:
		return r.Long()
	case codeFloat:
		return math.Float32frombits(uint32(r.whole(c)))
	case codeDouble:
		return math.Float64frombits(r.whole(c))
	case codeChar:
		return r.char()
	case codeTimestamp:
		return r.Timestamp()
	case codeUUID:
		return r.UUID()
	case codeDecimal32:
		var d Decimal32
		r.octets(c, d[:])
		return d
	case codeDecimal64:
		var d Decimal64
		r.octets(c, d[:])
		return d
	case codeDecimal128:
		var d Decimal128
		r.octets(c, d[:])
		return d
	case codeBinary8, codeBinary32:
		return bytes.Clone(r.Binary())
	case codeString8, codeString32:
		return r.String()
	case codeSymbol8, codeSymbol32:
		return r.Symbol()
	default:
		return in.compound(r, c, depth)
	}
}

// char refuses what is no Unicode scalar value.
func (r *Reader) char() Char {
	v := r.whole(codeChar)
	if v > utf8.MaxRune || !utf8.ValidRune(rune(v)) {
		r.failf("char 0x%x", v)
	}
	return Char(v)
}

func (in *values) described(r *Reader, depth int) any {
	if r.Done() {
		r.failf("value missing")
		return nil
	}
	if depth >= MaxDepth {
		r.failf("values nested deeper than %d", MaxDepth)
		return nil
	}
	d := r.descriptor()
	descriptor := in.value(&d, depth+1)
	r.afterDescriptor(d)
	value := in.value(r, depth+1)
	if r.err != nil {
		return nil
	}
	return Described{Descriptor: descriptor, Value: value}
}

func (in *values) compound(r *Reader, c byte, depth int) any {
	if depth >= MaxDepth {
		r.failf("values nested deeper than %d", MaxDepth)
		return nil
	}
	switch c {
	case codeList0, codeList8, codeList32:
		sub, n := r.List()
		if n == 0 {
			return r.empty(&sub, emptyList)
		}
		return List(in.elements(r, sub, n, depth))
	case codeMap8, codeMap32:
		sub, n := r.Map()
		if n == 0 {
			return r.empty(&sub, emptyMap)
		}
		return in.pairs(r, sub, n, depth)
	case codeArray8, codeArray32:
		sub, n := r.Array()
		if n == 0 {
			return r.empty(&sub, emptyArray)
		}
		if sub.ctor != nil && forms[sub.ctor[len(sub.ctor)-1]].least() == 0 {
			if in.zeros -= n; in.zeros < 0 {
				r.failf("more than %d elements without bytes", MaxZeroWidth)
				return nil
			}
		}
		return Array(in.elements(r, sub, n, depth))
	}
	r.failf("%s", codeName(c))
	return nil
}

func (in *values) elements(r *Reader, sub Reader, n, depth int) []any {
	if !r.counted(sub, n) {
		return nil
	}
	all := make([]any, 0, n)
	for i := 0; i < n && sub.err == nil; i++ {
		all = append(all, in.value(&sub, depth+1))
	}
	r.leave(&sub)
	return all
}

func (in *values) pairs(r *Reader, sub Reader, n, depth int) Map {
	if !r.counted(sub, 2*n) {
		return nil
	}
	all := make(Map, 0, n)
	for i := 0; i < n && sub.err == nil; i++ {
		key := in.value(&sub, depth+1)
		all = append(all, Pair{Key: key, Value: in.value(&sub, depth+1)})
	}
	r.leave(&sub)
	return all
}

// counted makes sure that the n stated elements are present, before memory is allocated for them.
// It skips over them, so a byte is passed once per level of nesting.
func (r *Reader) counted(sub Reader, n int) bool {
	if n <= few {
		return true
	}
	for i := 0; i < n && sub.err == nil; i++ {
		sub.Skip()
	}
	r.Fail(sub.err)
	return r.err == nil
}

func (r *Reader) empty(sub *Reader, v any) any {
	r.leave(sub)
	return v
}

// leave takes over the error of a list that was entered, or reports bytes after its last element.
func (r *Reader) leave(sub *Reader) {
	if r.Fail(sub.err); r.err == nil && len(sub.b) != 0 {
		r.failf("%d bytes after the last element", len(sub.b))
	}
}
