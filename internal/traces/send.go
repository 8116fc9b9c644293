// SPDX-License-Identifier: Apache-2.0

package traces

import (
	"context"
	"iter"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"overdue/internal/traceparent"
)

// Values of attributes (OpenTelemetry semantic conventions for messaging, 1.37).
const (
	system    = "servicebus"
	operation = "send"
)

// maxLinks bounds the links of a span, as the SDK does. It also bounds how many messages of a batch
// are asked for their contexts.
const maxLinks = 128

// A Start is what is known of a send when it begins.
type Start struct {
	Entity, Endpoint string
	Messages         int
	Began            time.Time
}

// A Send has the spans of one send: that of the whole, and below it those of its companions and of
// the time upstream. Its methods are for one goroutine at a time. Those of a nil Send do nothing.
type Send struct {
	Start
	tracer    *Tracer
	ctx       context.Context // of the spans below
	whole     trace.Span
	companion trace.Span // nil = none is being written
	slotted   bool
}

// A Failure says why a part of a send failed. The zero value says that it did not.
type Failure struct {
	Type string // error.type
	Text string
}

// ofServer is made once: sends that are not sampled pay for it, too.
var ofServer = trace.WithSpanKind(trace.SpanKindServer)

// Begin returns the trace of a send, or nil if it is not recorded. properties has the application
// properties of its messages. The parent is the first context among them that is sampled, or else
// the first one.
func (t *Tracer) Begin(s Start, properties iter.Seq[func(name string) any]) *Send {
	if t == nil {
		return nil
	}
	ctx := context.Background()
	parent, state := parentOf(properties)
	if parent != (traceparent.Context{}) {
		ctx = trace.ContextWithSpanContext(ctx, remote(parent, state))
	}
	ctx, whole := t.tracer.Start(ctx, operation+" "+bound(s.Entity), ofServer, trace.WithTimestamp(s.Began))
	if !whole.IsRecording() {
		return nil
	}
	whole.SetAttributes(slices.Concat(t.toProxy, []attribute.KeyValue{
		Text("messaging.destination.name", s.Entity),
		attribute.String("overdue.endpoint", s.Endpoint),
	})...)
	if s.Messages > 1 {
		whole.SetAttributes(attribute.Int("messaging.batch.message_count", s.Messages))
		addLinks(whole, properties, parent)
	}
	return &Send{
		Start:  s,
		tracer: t,
		ctx:    ctx,
		whole:  whole,
	}
}

// parentOf returns the context below which a send is, the zero Context if there is none.
func parentOf(properties iter.Seq[func(name string) any]) (parent traceparent.Context, state trace.TraceState) {
	var ofParent func(string) any
	asked := 0
	for property := range properties {
		if c, ok := traceparent.Of(property); ok && (ofParent == nil || c.Sampled) {
			parent, ofParent = c, property
		}
		if asked++; parent.Sampled || asked > maxLinks {
			break
		}
	}
	if ofParent == nil {
		return parent, state
	}
	text, _ := ofParent(traceparent.State).(string)
	state, err := trace.ParseTraceState(text)
	if err != nil { // it must not be passed on (W3C Trace Context, section 3.3.1)
		return parent, trace.TraceState{}
	}
	return parent, state
}

// addLinks links a span to the contexts of the messages other than parent.
func addLinks(span trace.Span, properties iter.Seq[func(name string) any], parent traceparent.Context) {
	asked, linked := 0, 0
	for property := range properties {
		if c, ok := traceparent.Of(property); ok && c != parent {
			span.AddLink(trace.Link{SpanContext: remote(c, trace.TraceState{})})
			linked++
		}
		if asked++; asked > maxLinks || linked == maxLinks {
			break
		}
	}
}

// Context is that of the span of the whole send; zero of a nil Send.
func (s *Send) Context() traceparent.Context {
	if s == nil {
		return traceparent.Context{}
	}
	return contextOf(s.whole)
}

// Promised notes the deadline of the first message, and how it was stated.
func (s *Send) Promised(id string, deadline time.Time, stated string, slotted bool) {
	if s == nil {
		return
	}
	s.slotted = slotted
	s.whole.SetAttributes(attribute.String("overdue.deadline", deadline.UTC().Format(time.RFC3339Nano)), attribute.String("overdue.stated", stated))
	if s.Messages == 1 && id != "" {
		s.whole.SetAttributes(Text("messaging.message.id", id))
	}
}

// Schedules notes that references are being written.
func (s *Send) Schedules(references int) {
	if s == nil {
		return
	}
	kind := "each"
	if s.slotted {
		kind = "slot"
	}
	queue := s.tracer.monitorQueue(s.Entity)
	s.companion = s.below(queue, trace.SpanKindProducer, time.Now(), attribute.String("overdue.companion", kind), attribute.Int("overdue.references", references))
}

// Scheduled notes the result of what Schedules began, if anything.
func (s *Send) Scheduled(f Failure) {
	if s == nil || s.companion == nil {
		return
	}
	end(s.companion, f)
	s.companion = nil
}

// Settled notes the outcome of messages that left for the namespace at that time.
func (s *Send) Settled(left time.Time, f Failure) {
	if s != nil {
		end(s.below(s.Entity, trace.SpanKindClient, left), f)
	}
}

// End records the spans. The Send must not be used after that, except for its Context.
func (s *Send) End(f Failure) {
	if s == nil {
		return
	}
	s.Scheduled(Failure{}) // if the send ends first
	end(s.whole, f)
}

// below starts a span of what goes to a queue or topic of the namespace.
func (s *Send) below(entity string, kind trace.SpanKind, began time.Time, about ...attribute.KeyValue) trace.Span {
	_, span := s.tracer.tracer.Start(s.ctx, operation+" "+bound(entity), trace.WithSpanKind(kind), trace.WithTimestamp(began))
	about = append(about, Text("messaging.destination.name", entity))
	span.SetAttributes(slices.Concat(s.tracer.upstream, about)...)
	return span
}

// end ends a span now.
func end(span trace.Span, f Failure) {
	if f.Text != "" {
		span.SetStatus(codes.Error, bound(f.Text))
	}
	if f.Type != "" {
		span.SetAttributes(Text("error.type", f.Type))
	}
	span.End()
}
