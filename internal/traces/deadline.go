// SPDX-License-Identifier: Apache-2.0

package traces

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

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
	About        []attribute.KeyValue
}

// Context returns the context of the span of a missed deadline. It depends on the event alone, so
// each delivery of the event, by any monitor, names the same span. Without a Tracer, or if the
// span is not recorded, it is the context of the message, or else of its send: the zero Context
// where neither is known.
func (t *Tracer) Context(d *Deadline) traceparent.Context {
	parent, _ := d.parent()
	span := t.start(d)
	if span == nil {
		return parent
	}
	return contextOf(span) // it never ends, so it is not exported
}

// Missed records the span of a missed deadline, from the deadline until it was seen. It is in the
// trace of the message, and has a link to the send.
func (t *Tracer) Missed(d *Deadline) {
	span := t.start(d)
	if span == nil {
		return
	}
	lag := max(d.Seen.Sub(d.Due), 0)
	span.SetAttributes(
		attribute.String("messaging.system", system),
		Text("messaging.destination.name", d.Entity),
		Text("overdue.verdict", d.Verdict),
		attribute.String("overdue.deadline", d.Due.UTC().Format(time.RFC3339Nano)),
		attribute.Int64("overdue.lag_ms", lag.Milliseconds()),
		attribute.String("overdue.event.id", d.EventID),
	)
	if d.MessageID != "" {
		span.SetAttributes(Text("messaging.message.id", d.MessageID))
	}
	if d.Subscription != "" {
		span.SetAttributes(Text("messaging.destination.subscription.name", d.Subscription))
	}
	span.SetAttributes(d.About...)
	span.SetAttributes(t.server...)
	if link, ok := traceparent.Parse(cmp.Or(d.Send, d.Message)); ok {
		span.AddLink(trace.Link{SpanContext: remote(link, trace.TraceState{})})
	}
	span.SetStatus(codes.Error, fmt.Sprintf("deadline %s, %d ms late", d.Verdict, lag.Milliseconds()))
	span.End(trace.WithTimestamp(d.Due.Add(lag)))
}

// start starts the span of a missed deadline, nil if it is not recorded.
func (t *Tracer) start(d *Deadline) trace.Span {
	if t == nil {
		return nil
	}
	event, err := trace.TraceIDFromHex(d.EventID)
	if err != nil {
		return nil
	}
	ctx := withEvent(context.Background(), event)
	if parent, ok := d.parent(); ok {
		ctx = trace.ContextWithSpanContext(ctx, remote(parent, trace.TraceState{}))
	}
	_, span := t.tracer.Start(ctx, "deadline "+bound(d.Verdict+" "+d.Entity), trace.WithTimestamp(d.Due))
	if !span.IsRecording() {
		return nil
	}
	return span
}

func (d *Deadline) parent() (traceparent.Context, bool) {
	if c, ok := traceparent.Parse(d.Message); ok {
		return c, true
	}
	return traceparent.Parse(d.Send)
}
