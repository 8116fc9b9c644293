// SPDX-License-Identifier: Apache-2.0

package amqp

import (
	"encoding/binary"
	"fmt"
	"math"
	"unicode/utf8"
)

const (
	// MaxDepth bounds how deep lists, maps, arrays and descriptors may nest.
	MaxDepth = 32

	// MaxZeroWidth bounds the elements of an array whose elements take no bytes (null, true, false,
	// uint 0, ulong 0, the empty list). It also bounds the sum of them in one call of Value. Ten bytes
	// can state four billion of those, so they need a limit.
	MaxZeroWidth = 256
)

// Reader is a cursor over encoded values. The first error sticks: every later call returns the zero
// value and does not move the cursor, so that a caller can read a whole composite and check Err
// once. All widths of a type are accepted; any other type is an error that names the wanted and the
// actual type.
//
// Reader is a value: copy it to look ahead. It allocates only for an error, and where a method says
// so.
type Reader struct {
	b   []byte // unread bytes
	err error

	// Within an array, whose elements share one constructor:
	ctor []byte // the constructor, descriptors included; nil elsewhere
	at   int    // bytes of ctor that were read for the current element
	left int    // elements not yet read, the current one included
}

// NewReader returns a Reader over b, which it never changes.
func NewReader(b []byte) Reader { return Reader{b: b} }

// Err returns the first error, which wraps ErrMalformed.
func (r *Reader) Err() error { return r.err }

// Fail makes err the Reader's error unless it has one, so that an error inside a list also ends the
// reading of its container. A nil err changes nothing.
func (r *Reader) Fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *Reader) failf(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
	}
}

// Len returns the number of unread bytes.
func (r *Reader) Len() int { return len(r.b) }

// Rest returns the unread bytes, such as the payload after a transfer. It does not consume them.
func (r *Reader) Rest() []byte { return r.b }

// Done reports whether there is nothing left to read: the end, or an error.
func (r *Reader) Done() bool {
	if r.ctor != nil {
		return r.left == 0 || r.err != nil
	}
	return len(r.b) == 0 || r.err != nil
}

// Next returns the constructor byte of the next value without consuming it. It returns 0 for a
// described value, and when nothing is left.
func (r *Reader) Next() byte {
	switch {
	case r.Done():
		return 0
	case r.ctor != nil:
		return r.ctor[r.at]
	}
	return r.b[0]
}

// Null consumes a null, if that comes next, and reports whether it did.
func (r *Reader) Null() bool {
	if r.Next() != codeNull {
		return false
	}
	r.code()
	return true
}

// code consumes the constructor byte. It returns 0 on error, and at a described value, which no
// caller of code expects.
func (r *Reader) code() byte {
	if r.Done() {
		r.failf("value missing")
		return 0
	}
	if r.ctor == nil {
		c := r.b[0]
		r.b = r.b[1:]
		return c
	}
	c := r.ctor[r.at]
	if r.at++; r.at == len(r.ctor) {
		r.at, r.left = 0, r.left-1
	}
	return c
}

// take consumes n bytes. Their capacity ends with them, so that no append reaches what follows.
func (r *Reader) take(n uint64) []byte {
	if r.err != nil {
		return nil
	}
	if n > uint64(len(r.b)) {
		r.failf("%d bytes stated, %d left", n, len(r.b))
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

// variable consumes a length of one or four bytes and as many bytes as it states.
func (r *Reader) variable(width int8) []byte {
	n := r.take(uint64(width))
	if r.err != nil {
		return nil
	}
	if width == 1 {
		return r.take(uint64(n[0]))
	}
	return r.take(uint64(binary.BigEndian.Uint32(n)))
}

// compound consumes the content of a list, map or array after its constructor c.
func (r *Reader) compound(c byte) (content []byte, count uint64) {
	f := &forms[c]
	content = r.variable(f.size)
	if r.err != nil {
		return nil, 0
	}
	if len(content) < int(f.count) {
		r.failf("%s of %d bytes has no room for its count", f.name, len(content))
		return nil, 0
	}
	if f.count == 1 {
		return content[1:], uint64(content[0])
	}
	return content[4:], uint64(binary.BigEndian.Uint32(content))
}

// enter consumes a list or a map and checks its count: an element takes a byte at least.
func (r *Reader) enter(code8, code32 byte) (Reader, int) {
	c := r.code()
	if r.err == nil && c != code8 && c != code32 {
		r.wrong(forms[code8].name, c)
	}
	if r.err != nil {
		return Reader{err: r.err}, 0
	}
	content, count := r.compound(c)
	if count > uint64(len(content)) {
		r.failf("%s of %d elements in %d bytes", forms[c].name, count, len(content))
	}
	if r.err != nil {
		return Reader{err: r.err}, 0
	}
	return Reader{b: content}, int(count)
}

// List consumes a list. It returns a Reader over the elements and their number, which is at most
// the number of bytes they take.
func (r *Reader) List() (Reader, int) {
	if r.Next() == codeList0 {
		r.code()
		return Reader{}, 0
	}
	return r.enter(codeList8, codeList32)
}

// Map consumes a map. It returns a Reader over keys and values in turn and the number of pairs,
// which is at most half the number of bytes they take.
func (r *Reader) Map() (Reader, int) {
	sub, n := r.enter(codeMap8, codeMap32)
	if n%2 != 0 {
		r.failf("map of %d elements, which is odd", n)
		return Reader{err: r.err}, 0
	}
	return sub, n / 2
}

// Array consumes an array. It returns a Reader that gives the elements like those of a list, and
// their number. The number is at most the larger of MaxZeroWidth and the number of bytes they take.
func (r *Reader) Array() (Reader, int) {
	c := r.code()
	if r.err == nil && c != codeArray8 && c != codeArray32 {
		r.wrong("array", c)
	}
	if r.err != nil {
		return Reader{err: r.err}, 0
	}
	content, count := r.compound(c)
	if r.err == nil && count == 0 && len(content) == 0 {
		return Reader{}, 0 // no constructor: the standard requires one, some peers leave it out
	}
	width := r.constructor(content)
	if r.err != nil {
		return Reader{err: r.err}, 0
	}
	least := uint64(forms[content[width-1]].least())
	room := uint64(len(content) - width)
	if count*least > room || least == 0 && count > MaxZeroWidth {
		r.failf("array of %d elements of type %s in %d bytes", count, forms[content[width-1]].name, room)
		return Reader{err: r.err}, 0
	}
	return Reader{b: content[width:], ctor: content[:width:width], left: int(count)}, int(count)
}

// constructor returns the length of the constructor, descriptors included, that b begins with.
func (r *Reader) constructor(b []byte) int {
	n := 0
	for depth := 0; r.err == nil && depth < MaxDepth; depth++ {
		if n >= len(b) {
			r.failf("array without constructor")
			return 0
		}
		if c := b[n]; c != codeDescribed {
			if forms[c].name == "" {
				r.failf("array of %s", codeName(c))
			}
			return n + 1
		}
		size, err := sizeOf(b[n+1:], depth)
		r.Fail(err)
		n += 1 + size
	}
	r.failf("descriptors nested deeper than %d", MaxDepth)
	return 0
}

func (r *Reader) wrong(want string, got byte) {
	r.failf("want %s, got %s", want, codeName(got))
}

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

// sizeOf returns the number of bytes of the value that b begins with, constructor and descriptor
// included. It does not read lists, maps and arrays: their stated size is enough.
func sizeOf(b []byte, depth int) (int, error) {
	if len(b) == 0 {
		return 0, fmt.Errorf("%w: value missing", ErrMalformed)
	}
	f := &forms[b[0]]
	n := uint64(1) + uint64(f.fixed)
	switch {
	case b[0] == codeDescribed:
		return sizeOfDescribed(b, depth)
	case f.name == "":
		return 0, fmt.Errorf("%w: %s", ErrMalformed, codeName(b[0]))
	case f.size == 1 && len(b) >= 2:
		n = 2 + uint64(b[1])
	case f.size == 4 && len(b) >= 5:
		n = 5 + uint64(binary.BigEndian.Uint32(b[1:]))
	case f.size != 0:
		n += uint64(f.size)
	}
	if n > uint64(len(b)) || n < uint64(1+f.least()) {
		return 0, fmt.Errorf("%w: %s of %d bytes, %d left", ErrMalformed, f.name, n, len(b))
	}
	return int(n), nil
}

// sizeOfDescribed handles described values, which nest without a size: a descriptor may be
// described.
func sizeOfDescribed(b []byte, depth int) (int, error) {
	if depth >= MaxDepth {
		return 0, fmt.Errorf("%w: descriptors nested deeper than %d", ErrMalformed, MaxDepth)
	}
	descriptor, err := sizeOf(b[1:], depth+1)
	if err != nil {
		return 0, err
	}
	value, err := sizeOf(b[1+descriptor:], depth+1)
	return 1 + descriptor + value, err
}

// Skip consumes one value, descriptor included. It does not read lists, maps and arrays.
func (r *Reader) Skip() {
	if r.ctor != nil {
		r.skipElement()
		return
	}
	r.slice()
}

// Raw consumes one value, descriptor included, and returns its bytes, which alias the input. Only
// the element of an array is copied, since its constructor is elsewhere.
func (r *Reader) Raw() Raw {
	if r.ctor == nil {
		return r.slice()
	}
	begin := r.ctor[r.at:]
	value := r.skipElement()
	if r.err != nil {
		return nil
	}
	return append(append(make(Raw, 0, len(begin)+len(value)), begin...), value...)
}

func (r *Reader) slice() Raw {
	if r.err != nil {
		return nil
	}
	n, err := sizeOf(r.b, 0)
	if err != nil {
		r.err = err
		return nil
	}
	return r.take(uint64(n))
}

// skipElement consumes an element of an array and returns the bytes after its constructor.
func (r *Reader) skipElement() []byte {
	if !r.Done() {
		r.at = len(r.ctor) - 1
	}
	c := r.code()
	if r.err != nil {
		return nil
	}
	f := &forms[c]
	if f.size == 0 {
		return r.take(uint64(f.fixed))
	}
	whole := r.b
	if content := r.variable(f.size); r.err == nil && len(content) < int(f.count) {
		r.failf("%s of %d bytes has no room for its count", f.name, len(content))
	}
	if r.err != nil {
		return nil
	}
	return whole[:len(whole)-len(r.b)]
}
