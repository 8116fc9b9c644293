// SPDX-License-Identifier: Apache-2.0

package traces

import (
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"overdue/internal/traceparent"
)

// An Attribute says something about a span. It has a text, a number or a truth.
type Attribute struct {
	Key    string
	text   string
	number int64
	kind   protowire.Number // the field of AnyValue
}

// Fields of AnyValue (opentelemetry/proto/common/v1/common.proto).
const (
	anyString protowire.Number = 1
	anyInt    protowire.Number = 3
)

// Text is an attribute whose value is a text.
func Text(key, value string) Attribute { return Attribute{Key: key, text: value, kind: anyString} }

// Number is an attribute whose value is a number.
func Number(key string, value int64) Attribute {
	return Attribute{Key: key, number: value, kind: anyInt}
}

// A kind is a SpanKind.
type kind uint64

const (
	kindInternal kind = 1
	kindServer   kind = 2
	kindClient   kind = 3
	kindProducer kind = 4
)

// A span as OTLP has it. Its methods write it by hand: docs/decisions/0052 says what that saves.
type span struct {
	context    traceparent.Context
	state      string // tracestate
	parent     [8]byte
	remote     bool // the parent is a span of another process
	name       string
	kind       kind
	start, end time.Time
	encoded    []byte // attributes that many spans share, see encode
	attributes []Attribute
	links      []traceparent.Context
	failure    string // "" = none
}

// maxText bounds a value in a span, in bytes: Service Bus bounds neither correlation-ids nor the
// descriptions of its errors.
const maxText = 1024

// Fields of Span (opentelemetry/proto/trace/v1/trace.proto).
const (
	spanTraceID    protowire.Number = 1
	spanSpanID     protowire.Number = 2
	spanState      protowire.Number = 3
	spanParent     protowire.Number = 4
	spanName       protowire.Number = 5
	spanKind       protowire.Number = 6
	spanStart      protowire.Number = 7
	spanEnd        protowire.Number = 8
	spanAttributes protowire.Number = 9
	spanLinks      protowire.Number = 13
	spanStatus     protowire.Number = 15
	spanFlags      protowire.Number = 16
)

// Bits of the flags of spans and links.
const (
	flagSampled     = 1 << 0
	flagKnownRemote = 1 << 8 // whether the parent is remote is known
	flagRemote      = 1 << 9
)

// codeError is the code of a Status.
const codeError = 2

// append appends the span as field number of the message around it.
func (s *span) append(b []byte, number protowire.Number) []byte {
	b, start := open(b, number)
	b = appendBytes(b, spanTraceID, s.context.TraceID[:])
	b = appendBytes(b, spanSpanID, s.context.SpanID[:])
	b = appendText(b, spanState, s.state)
	flags := uint32(flagKnownRemote)
	if s.context.Sampled {
		flags |= flagSampled
	}
	if s.parent != [8]byte{} {
		b = appendBytes(b, spanParent, s.parent[:])
	}
	if s.remote {
		flags |= flagRemote
	}
	b = appendText(b, spanName, s.name)
	b = appendUint(b, spanKind, uint64(s.kind))
	b = appendTime(b, spanStart, s.start)
	b = appendTime(b, spanEnd, s.end)
	b = append(b, s.encoded...)
	for i := range s.attributes {
		b = s.attributes[i].append(b, spanAttributes)
	}
	for i := range s.links {
		b = appendLink(b, &s.links[i])
	}
	if s.failure != "" {
		var status int
		b, status = open(b, spanStatus)
		b = appendText(b, 2, s.failure)
		b = appendUint(b, 3, codeError)
		b = end(b, status)
	}
	b = protowire.AppendTag(b, spanFlags, protowire.Fixed32Type)
	b = protowire.AppendFixed32(b, flags)
	return end(b, start)
}

func appendLink(b []byte, c *traceparent.Context) []byte {
	b, start := open(b, spanLinks)
	b = appendBytes(b, 1, c.TraceID[:])
	b = appendBytes(b, 2, c.SpanID[:])
	flags := uint32(flagKnownRemote | flagRemote)
	if c.Sampled {
		flags |= flagSampled
	}
	b = protowire.AppendTag(b, 6, protowire.Fixed32Type)
	b = protowire.AppendFixed32(b, flags)
	return end(b, start)
}

// encode returns attributes as a span has them.
func encode(attributes ...Attribute) (b []byte) {
	for i := range attributes {
		b = attributes[i].append(b, spanAttributes)
	}
	return b
}

// append appends the attribute as a KeyValue.
func (a *Attribute) append(b []byte, number protowire.Number) []byte {
	b, start := open(b, number)
	b = protowire.AppendString(protowire.AppendTag(b, 1, protowire.BytesType), a.Key)
	b, value := open(b, 2)
	if a.kind == anyString {
		b = protowire.AppendTag(b, anyString, protowire.BytesType) // an empty one has to be there, too
		b = protowire.AppendString(b, cut(a.text))
	} else {
		b = protowire.AppendTag(b, a.kind, protowire.VarintType)
		b = protowire.AppendVarint(b, uint64(a.number))
	}
	return end(end(b, value), start)
}

// lengthRoom is the room for the length of a message. Its varint always takes that many bytes,
// so that the length can be written when it is known.
const lengthRoom = 4

// open begins a message in a field. end ends it.
func open(b []byte, number protowire.Number) (out []byte, start int) {
	b = protowire.AppendTag(b, number, protowire.BytesType)
	return append(b, 0, 0, 0, 0), len(b) + lengthRoom
}

func end(b []byte, start int) []byte {
	n := len(b) - start
	for i := range lengthRoom {
		b[start-lengthRoom+i] = byte(n>>(7*i)) & 0x7f
		if i < lengthRoom-1 {
			b[start-lengthRoom+i] |= 0x80
		}
	}
	return b
}

// cut returns s as a receiver takes it: a text of protocol buffers is UTF-8.
func cut(s string) string {
	if len(s) <= maxText && utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s[:min(len(s), maxText)], "\uFFFD")
}

func appendBytes(b []byte, number protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), v)
}

func appendText(b []byte, number protowire.Number, v string) []byte {
	if v == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), cut(v))
}

func appendUint(b []byte, number protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), v)
}

func appendTime(b []byte, number protowire.Number, t time.Time) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(b, number, protowire.Fixed64Type), uint64(t.UnixNano()))
}
