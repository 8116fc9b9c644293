// SPDX-License-Identifier: Apache-2.0

package amqp

import (
	"encoding/binary"
	"fmt"
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
