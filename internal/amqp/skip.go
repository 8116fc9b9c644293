// SPDX-License-Identifier: Apache-2.0

package amqp

import (
	"encoding/binary"
	"fmt"
)

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
