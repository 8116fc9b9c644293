// SPDX-License-Identifier: Apache-2.0

package traces

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"time"

	"overdue/internal/traceparent"
)

// A Deadline is one that was missed.
type Deadline struct {
	EventID string // 32 hexadecimal digits; the span has its id from there
	Message string // the traceparent that the message carries; "" = none
	Send    string // that of the span of its send; "" = not known

	Verdict      string
	Entity       string
	Subscription string // "" = none
	MessageID    string
	Due, Seen    time.Time // by the broker's clock: the deadline, and when it was found to be missed
	About        []Attribute
}

// Context returns the context of the span of a missed deadline. It depends on the event alone, so
// each delivery of the event, by any monitor, names the same span. Without a Tracer, or if the
// span is not recorded, it is the context of the message, or else of its send: the zero Context
// where neither is known.
func (t *Tracer) Context(d *Deadline) traceparent.Context {
	parent, known := d.parent()
	if t == nil {
		return parent
	}
	c := traceparent.Context{TraceID: parent.TraceID, Sampled: true}
	id, err := hex.DecodeString(d.EventID)
	if err != nil || len(id) != len(c.TraceID) {
		return parent
	}
	if !known {
		c.TraceID = [16]byte(id)
	}
	c.SpanID = [8]byte(id)
	if !t.cfg.Sampler.samples(parent, known, c.TraceID) {
		return parent
	}
	return c
}

func (d *Deadline) parent() (traceparent.Context, bool) {
	if c, ok := traceparent.Parse(d.Message); ok {
		return c, true
	}
	return traceparent.Parse(d.Send)
}

// Missed records the span of a missed deadline, from the deadline until it was seen. It is in the
// trace of the message, and has a link to the send.
func (t *Tracer) Missed(d *Deadline) {
	if t == nil {
		return
	}
	parent, known := d.parent()
	c := t.Context(d)
	if c == parent {
		return
	}
	m := &missed{context: c, d: *d, parent: parent, known: known}
	if link, ok := traceparent.Parse(cmp.Or(d.Send, d.Message)); ok {
		m.links = []traceparent.Context{link}
	}
	t.add(m)
}

// missed is the record of a missed deadline.
type missed struct {
	context, parent traceparent.Context
	known           bool // there is a parent
	links           []traceparent.Context
	d               Deadline
}

func (m *missed) spans() int { return 1 }

func (m *missed) append(b []byte, t *Tracer) []byte {
	d := &m.d
	lag := max(d.Seen.Sub(d.Due), 0)
	s := span{
		context: m.context, name: "deadline " + d.Verdict + " " + d.Entity, kind: kindInternal,
		remote: m.known, links: m.links, start: d.Due, end: d.Due.Add(lag),
		failure: fmt.Sprintf("deadline %s, %d ms late", d.Verdict, lag.Milliseconds()),
		attributes: []Attribute{
			Text("messaging.system", system), Text("messaging.destination.name", d.Entity),
			Text("overdue.verdict", d.Verdict), Text("overdue.deadline", d.Due.UTC().Format(time.RFC3339Nano)), Number("overdue.lag_ms", lag.Milliseconds()),
			Text("overdue.event.id", d.EventID),
		},
	}
	if m.known {
		s.parent = m.parent.SpanID
	}
	if d.MessageID != "" {
		s.attributes = append(s.attributes, Text("messaging.message.id", d.MessageID))
	}
	if d.Subscription != "" {
		s.attributes = append(s.attributes, Text("messaging.destination.subscription.name", d.Subscription))
	}
	s.attributes = t.appendServer(append(s.attributes, d.About...))
	return s.append(b, spansOfScope)
}
