// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"overdue/internal/testing/testseed"
)

// A writer encodes messages in every form that the standard allows, seeded.
type writer struct{ *rand.Rand }

func (w writer) bytes(n int) []byte {
	b := make([]byte, w.IntN(n+1))
	for i := range b {
		b[i] = 'a' + byte(w.IntN(26))
	}
	return b
}

// wide encodes a length in one byte or in four.
func (w writer) wide(dst []byte, code8 byte, content []byte, count int) []byte {
	compound := code8 == 0xc0 || code8 == 0xc1
	if code8 == 0xc0 && count == 0 && w.IntN(2) == 0 {
		return append(dst, 0x45)
	}
	if w.IntN(2) == 0 && len(content) < 254 && count < 256 {
		if compound {
			return append(append(dst, code8, byte(len(content)+1), byte(count)), content...)
		}
		return append(append(dst, code8, byte(len(content))), content...)
	}
	n := len(content)
	if compound {
		n += 4
	}
	dst = append(dst, code8|0x10, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	if compound {
		dst = append(dst, byte(count>>24), byte(count>>16), byte(count>>8), byte(count))
	}
	return append(dst, content...)
}

// descriptor encodes it as a small or a full ulong, or as a symbol.
func (w writer) descriptor(dst []byte, code byte, symbol string) []byte {
	switch w.IntN(3) {
	case 0:
		return append(dst, 0x00, 0x53, code)
	case 1:
		return append(dst, 0x00, 0x80, 0, 0, 0, 0, 0, 0, 0, code)
	}
	return append(append(dst, 0x00, 0xa3, byte(len(symbol))), symbol...)
}

// list encodes up to n fields, some of them null.
func (w writer) list(dst []byte, fields ...func([]byte) []byte) []byte {
	n := w.IntN(len(fields) + 1)
	var content []byte
	for _, f := range fields[:n] {
		if w.IntN(3) == 0 {
			content = append(content, 0x40)
		} else {
			content = f(content)
		}
	}
	return w.wide(dst, 0xc0, content, n)
}

func (w writer) text(code8 byte) func([]byte) []byte {
	return func(dst []byte) []byte { return w.wide(dst, code8, w.bytes(40), 0) }
}

func (w writer) integer(dst []byte) []byte {
	switch w.IntN(3) {
	case 0:
		return append(dst, 0x43)
	case 1:
		return append(dst, 0x52, byte(w.IntN(256)))
	}
	return append(dst, 0x70, 0, byte(w.IntN(256)), byte(w.IntN(256)), byte(w.IntN(256)))
}

func (w writer) id(dst []byte) []byte {
	switch w.IntN(5) {
	case 0:
		return append(dst, 0x44)
	case 1:
		return append(append(dst, 0x98), make([]byte, 16)...)
	case 2:
		return w.text(0xa0)(dst)
	}
	return w.text(0xa1)(dst)
}

func (w writer) pairs(dst []byte, key byte) []byte {
	var content []byte
	n := w.IntN(4)
	for i := range n {
		content = w.wide(content, key, fmt.Appendf(nil, "k%d", i), 0)
		switch w.IntN(3) {
		case 0:
			content = append(content, 0x40)
		case 1:
			content = w.integer(content)
		case 2:
			content = w.text(0xa1)(content)
		}
	}
	return w.wide(dst, 0xc1, content, 2*n)
}

func (w writer) message() []byte {
	var b []byte
	boolean := func(dst []byte) []byte { return append(dst, 0x56, byte(w.IntN(2))) }
	octet := func(dst []byte) []byte { return append(dst, 0x50, byte(w.IntN(256))) }
	instant := func(dst []byte) []byte { return append(dst, 0x83, 0, 0, 1, 0x90, 0, 0, 0, byte(w.IntN(256))) }
	if w.IntN(3) > 0 {
		b = w.list(w.descriptor(b, 0x70, "amqp:header:list"), boolean, octet, w.integer, boolean, w.integer)
	}
	if w.IntN(3) == 0 {
		b = w.pairs(w.descriptor(b, 0x71, "amqp:delivery-annotations:map"), 0xa3)
	}
	if w.IntN(2) == 0 {
		b = w.pairs(w.descriptor(b, 0x72, "amqp:message-annotations:map"), 0xa3)
	}
	if w.IntN(3) > 0 {
		b = w.list(w.descriptor(b, 0x73, "amqp:properties:list"), w.id, w.text(0xa0), w.text(0xa1), w.text(0xa1), w.text(0xa1),
			w.id, w.text(0xa3), w.text(0xa3), instant, instant, w.text(0xa1), w.integer, w.text(0xa1))
	}
	if w.IntN(2) == 0 {
		b = w.pairs(w.descriptor(b, 0x74, "amqp:application-properties:map"), 0xa1)
	}
	switch w.IntN(4) {
	case 0:
		b = w.pairs(w.descriptor(b, 0x77, "amqp:amqp-value:*"), 0xa1)
	case 1:
		for range 1 + w.IntN(3) {
			b = w.list(w.descriptor(b, 0x76, "amqp:amqp-sequence:list"), w.integer, w.text(0xa1))
		}
	case 2:
		for range 1 + w.IntN(3) {
			b = w.wide(w.descriptor(b, 0x75, "amqp:data:binary"), 0xa0, w.bytes(400), 0)
		}
	}
	if w.IntN(4) == 0 {
		b = w.pairs(w.descriptor(b, 0x78, "amqp:footer:map"), 0xa3)
	}
	return b
}

func seeded(t *testing.T) writer {
	t.Helper()
	return writer{rand.New(rand.NewPCG(testseed.Of(t), 0))}
}
