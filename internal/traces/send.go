// SPDX-License-Identifier: Apache-2.0

package traces

import (
	"encoding/binary"
	"iter"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"time"

	"overdue/internal/traceparent"
)

// A Start is what is known of a send when it begins.
type Start struct {
	Entity, Endpoint string
	Messages         int
	Began            time.Time
}

// maxLinks bounds the links of a span, as the OpenTelemetry SDKs do. It also bounds how many
// messages of a batch are asked for their contexts.
const maxLinks = 128

// A Send becomes the spans of one send: that of the whole, and below it those of its companions and
// of the time upstream. Its methods are for one goroutine at a time. Those of a nil Send do nothing.
type Send struct {
	Start
	tracer    *Tracer
	context   traceparent.Context
	parent    traceparent.Context
	hasParent bool
	state     string                // tracestate
	links     []traceparent.Context // of the other messages
	messageID string                // "" = there are several, or it is not known

	companions [2]interval // the second, if there is one, is for a window that ends later
	written    int
	upstream   interval
	whole      interval

	slotted    bool
	references int
	deadline   time.Time
	stated     string
}

// An interval is what becomes of a span.
type interval struct {
	began, ended time.Time
	failure      Failure
}

// A Failure says why a part of a send failed. The zero value says that it did not.
type Failure struct {
	Type string // error.type
	Text string
}

// Begin returns the trace of a send, or nil if it is not recorded. properties has the application
// properties of its messages. The parent is the first context among them that is sampled, or else
// the first one.
func (t *Tracer) Begin(s Start, properties iter.Seq[func(name string) any]) *Send {
	if t == nil {
		return nil
	}
	var parent traceparent.Context
	var known bool
	var of func(string) any
	asked := 0
	for property := range properties {
		if c, ok := traceparent.Of(property); ok && (!known || c.Sampled) {
			parent, known, of = c, true, property
		}
		if asked++; parent.Sampled || asked > maxLinks {
			break
		}
	}
	trace := parent.TraceID
	if !known {
		binary.BigEndian.PutUint64(trace[:], rand.Uint64())
		binary.BigEndian.PutUint64(trace[8:], rand.Uint64()|1) // an id of zeros is none
	}
	if !t.cfg.Sampler.samples(parent, known, trace) {
		return nil
	}
	out := &Send{
		Start: s, tracer: t, parent: parent, hasParent: known, whole: interval{began: s.Began},
		context: traceparent.Context{TraceID: trace, SpanID: newSpanID(), Sampled: true},
	}
	if known {
		state, _ := of(traceparent.State).(string)
		out.state = validState(state)
	}
	if s.Messages > 1 {
		out.links = linksOf(properties, parent)
	}
	return out
}

// linksOf returns the contexts of the messages other than parent.
func linksOf(properties iter.Seq[func(name string) any], parent traceparent.Context) (links []traceparent.Context) {
	asked := 0
	for property := range properties {
		if c, ok := traceparent.Of(property); ok && c != parent {
			links = append(links, c)
		}
		if asked++; asked > maxLinks || len(links) == maxLinks {
			break
		}
	}
	return links
}

// maxState bounds a tracestate (W3C Trace Context, section 3.3.1.5).
const maxState = 512

// validState returns s if it may be passed on.
func validState(s string) string {
	if len(s) > maxState || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		return ""
	}
	return s
}

func newSpanID() (id [8]byte) {
	binary.BigEndian.PutUint64(id[:], rand.Uint64()|1)
	return id
}

// Context is that of the span of the whole send; zero of a nil Send.
func (s *Send) Context() traceparent.Context {
	if s == nil {
		return traceparent.Context{}
	}
	return s.context
}

// Promised notes the deadline of the first message, and how it was stated.
func (s *Send) Promised(id string, deadline time.Time, stated string, slotted bool) {
	if s == nil {
		return
	}
	if s.Messages == 1 {
		s.messageID = id
	}
	s.deadline, s.stated, s.slotted = deadline, stated, slotted
}

// Schedules notes that references are being written.
func (s *Send) Schedules(references int) {
	if s == nil || s.written == len(s.companions) {
		return
	}
	s.companions[s.written].began = time.Now()
	s.written++
	s.references = max(s.references, references)
}

// Scheduled notes the result of what Schedules began, if anything.
func (s *Send) Scheduled(f Failure) {
	if s == nil || s.written == 0 {
		return
	}
	if c := &s.companions[s.written-1]; c.ended.IsZero() {
		c.ended, c.failure = time.Now(), f
	}
}

// Settled notes the outcome of messages that left for the namespace at that time.
func (s *Send) Settled(left time.Time, f Failure) {
	if s != nil {
		s.upstream = interval{left, time.Now(), f}
	}
}

// End records the spans. The Send must not be used after that, except for its Context.
func (s *Send) End(f Failure) {
	if s == nil {
		return
	}
	s.whole.ended, s.whole.failure = time.Now(), f
	s.tracer.add(s)
}

func (s *Send) spans() int {
	n := 1 + s.written
	if !s.upstream.ended.IsZero() {
		n++
	}
	return n
}

// Values of attributes (OpenTelemetry semantic conventions for messaging, 1.37).
const (
	system    = "servicebus"
	operation = "send"
)

func (s *Send) append(b []byte, t *Tracer) []byte {
	var room [16]Attribute
	about := append(room[:0], Text("messaging.destination.name", s.Entity), Text("overdue.endpoint", s.Endpoint))
	if s.Messages > 1 {
		about = append(about, Number("messaging.batch.message_count", int64(s.Messages)))
	}
	if s.messageID != "" {
		about = append(about, Text("messaging.message.id", s.messageID))
	}
	if !s.deadline.IsZero() {
		about = append(about, Text("overdue.deadline", s.deadline.UTC().Format(time.RFC3339Nano)), Text("overdue.stated", s.stated))
	}
	whole := span{
		context: s.context, state: s.state, name: operation + " " + s.Entity, kind: kindServer, remote: s.hasParent, links: s.links, encoded: t.toProxy,
	}
	if s.hasParent {
		whole.parent = s.parent.SpanID
	}
	b = s.whole.append(b, whole, about)

	below := span{context: s.context, state: s.state, parent: s.context.SpanID, encoded: t.upstream}
	queue := t.o.MonitorQueue(s.Entity)
	about = append(about[:0], Text("messaging.destination.name", queue), Text("overdue.companion", companionKind(s.slotted)), Number("overdue.references", int64(s.references)))
	for i := range s.written {
		below.context.SpanID, below.name, below.kind = newSpanID(), operation+" "+queue, kindProducer
		c := s.companions[i]
		if c.ended.IsZero() { // the send ended first
			c.ended = s.whole.ended
		}
		b = c.append(b, below, about)
	}
	if s.upstream.ended.IsZero() {
		return b
	}
	about = append(about[:0], Text("messaging.destination.name", s.Entity))
	below.context.SpanID, below.name, below.kind = newSpanID(), operation+" "+s.Entity, kindClient
	return s.upstream.append(b, below, about)
}

// append appends the span s over the interval.
func (i *interval) append(b []byte, s span, about []Attribute) []byte {
	s.start, s.end, s.attributes, s.failure = i.began, i.ended, about, i.failure.Text
	if i.failure.Type != "" {
		s.attributes = append(s.attributes, Text("error.type", i.failure.Type))
	}
	return s.append(b, spansOfScope)
}

// spansOfScope is the field of ScopeSpans that has them.
const spansOfScope = 2

func companionKind(slotted bool) string {
	if slotted {
		return "slot"
	}
	return "each"
}

// appendServer appends where the namespace is.
func (t *Tracer) appendServer(about []Attribute) []Attribute {
	if t.host == "" {
		return about
	}
	about = append(about, Text("server.address", t.host))
	if t.port != 0 {
		about = append(about, Number("server.port", t.port))
	}
	return about
}

// splitAddress splits host or host:port.
func splitAddress(address string) (host string, port int64) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return address, 0
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return address, 0
	}
	return host, int64(n)
}
