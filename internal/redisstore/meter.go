// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"bytes"
	"fmt"
	"strings"
)

// Bounds of what is read from Redis. The client makes room for what a header states before any of
// it has come, so a header beyond these must not reach it.
const (
	// mostBulk bounds one string, in bytes. The longest of ours is a companion that could not be done:
	// 256 KiB of it, in Base64.
	mostBulk = 1 << 20
	// mostLine bounds a line, in bytes: a status, an error, a number.
	mostLine = 64 << 10
	// mostElements bounds the elements of all arrays that answer what was asked together. COMMAND,
	// which a cluster is asked, has 12,000 in Redis 7.0.
	mostElements = 1 << 18
	// mostDepth bounds arrays in arrays. COMMAND has eight.
	mostDepth = 16
	// mostAnswer bounds all that answers what was asked together, in bytes. A page of companions that
	// are as long as they may be has 25 MiB (scanMost).
	mostAnswer = 32 << 20
)

// An excessError says that Redis has sent what none of our questions is answered with.
type excessError struct{ what string }

func (e *excessError) Error() string { return "redis sent " + e.what }

func excess(format string, args ...any) error { return &excessError{fmt.Sprintf(format, args...)} }

// meterBounds are those of a replyMeter.
type meterBounds struct{ bulk, line, elements, depth int }

var ourBounds = meterBounds{mostBulk, mostLine, mostElements, mostDepth}

// A replyMeter reads along with a client, and fails at the header that states too much. It
// understands RESP2 and RESP3, which the client speaks to sentinels
// (https://redis.io/docs/latest/develop/reference/protocol-spec/). Streamed strings and arrays are
// refused, since they state no length; the client does not know them either.
type replyMeter struct {
	bounds meterBounds

	elements int // that were stated since the last reset

	open []openArray // that have begun, the outermost first
	kind byte        // of the line that has begun; 0 = none has
	size int         // of that line so far, without its type
	head []byte      // the line, where it is a number that matters
	skip int         // bytes of a string that are still to come, its end of line included
}

// An openArray is an array, a map or the like of which something is still to come.
type openArray struct {
	left      int  // elements
	attribute bool // it is about the element that follows, and none itself
}

// reset follows a new question, whose answers have bounds of their own.
func (m *replyMeter) reset() { m.elements = 0 }

// midway reports whether an answer has begun and not ended.
func (m *replyMeter) midway() bool { return m.kind != 0 || m.skip > 0 || len(m.open) > 0 }

// feed reads what comes next, which may end anywhere.
func (m *replyMeter) feed(b []byte) error {
	for len(b) > 0 {
		switch {
		case m.skip > 0:
			n := min(m.skip, len(b))
			b = b[n:]
			if m.skip -= n; m.skip == 0 {
				m.end()
			}
		case m.kind == 0:
			m.kind, m.size, m.head = b[0], 0, m.head[:0]
			if !isSimple(m.kind) && !isString(m.kind) && !isArray(m.kind) {
				return excess("an answer of the type %q, which there is not", m.kind)
			}
			b = b[1:]
		default:
			n := bytes.IndexByte(b, '\n') + 1
			whole := n > 0
			if !whole {
				n = len(b)
			}
			if m.size += n; m.size > m.bounds.line {
				return excess("a line of more than %d bytes", m.bounds.line)
			}
			if !isSimple(m.kind) {
				if m.size > len("18446744073709551615\r\n") {
					return excess("a length of more than 20 digits")
				}
				m.head = append(m.head, b[:n]...)
			}
			b = b[n:]
			if whole {
				if err := m.header(); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func isSimple(kind byte) bool { return strings.IndexByte("+-:_,#(", kind) >= 0 }
func isString(kind byte) bool { return strings.IndexByte("$!=", kind) >= 0 }
func isArray(kind byte) bool  { return strings.IndexByte("*~>%|", kind) >= 0 }

// header ends a line.
func (m *replyMeter) header() error {
	kind := m.kind
	m.kind = 0
	if isSimple(kind) {
		m.end()
		return nil
	}
	n, ok := stated(m.head)
	if !ok || n == -1 && kind != '$' && kind != '*' {
		return excess("the length %q", m.head)
	}
	if isString(kind) {
		switch {
		case n == -1: // there is none
			m.end()
		case n > m.bounds.bulk:
			return excess("a string of %d bytes; no answer has one of more than %d", n, m.bounds.bulk)
		default:
			m.skip = n + len("\r\n")
		}
		return nil
	}
	return m.array(kind, n)
}

// array begins one of n elements, or pairs.
func (m *replyMeter) array(kind byte, n int) error {
	a := openArray{left: max(n, 0), attribute: kind == '|'}
	if kind == '%' || kind == '|' {
		a.left *= 2
	}
	cost := a.left
	if a.attribute {
		cost++ // the client goes one call deeper for each
	}
	switch {
	case cost > m.bounds.elements-m.elements:
		return excess("an array of %d elements; no answer has more than %d", a.left, m.bounds.elements)
	case a.left > 0 && len(m.open) == m.bounds.depth:
		return excess("arrays in arrays, more than %d deep", m.bounds.depth)
	}
	m.elements += cost
	switch {
	case a.left > 0:
		m.open = append(m.open, a)
	case !a.attribute:
		m.end()
	}
	return nil
}

// end is that of an element, and of the arrays whose last one it is.
func (m *replyMeter) end() {
	for len(m.open) > 0 {
		last := &m.open[len(m.open)-1]
		if last.left--; last.left > 0 {
			return
		}
		attribute := last.attribute
		m.open = m.open[:len(m.open)-1]
		if attribute {
			return
		}
	}
}

// stated is the length that a header states, -1 for what is not there.
func stated(line []byte) (n int, ok bool) {
	digits, whole := bytes.CutSuffix(line, []byte("\r\n"))
	switch {
	case !whole || len(digits) == 0:
		return 0, false
	case string(digits) == "-1":
		return -1, true
	}
	for _, d := range digits {
		if d < '0' || d > '9' {
			return 0, false
		}
		if n < 1<<40 { // more is beyond all bounds
			n = 10*n + int(d-'0')
		}
	}
	return n, true
}
