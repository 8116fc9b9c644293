// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.uber.org/zap"

	"overdue/alert"
	"overdue/internal/traces"
	"overdue/internal/version"
)

// startTraces starts the export of spans, and returns nil unless the variables of OpenTelemetry
// name a receiver. They are often set for a whole fleet, so a mistake in them turns traces off and
// stops nothing.
func startTraces(e *environment, namespace string) *traces.Tracer {
	t, err := traces.New(traces.Options{
		Namespace:    namespace,
		MonitorQueue: e.cfg.AllMonitorQueues().For,
		Version:      version.String(),
		Log:          e.log.Named("traces"),
		Registerer:   e.registry,
	})
	if err != nil {
		e.log.Warn("traces are off", zap.Error(err), zap.String("next", version.Doc("docs/operate/traces.md has the variables; restart after a change")))
		return nil
	}
	if t == nil {
		return nil
	}
	e.log.Info("traces are on", zap.String("receiver", t.Receiver()))
	e.life.Background("traces", t.Run)
	return t
}

// A tracedSink gives each event the traceparent of its span before it passes it on. The first sink
// records the span: it takes each event once, whatever becomes of the other sinks.
type tracedSink struct {
	alert.Alerter
	tracer  *traces.Tracer // nil: events get the traceparent of their message
	records bool
}

// Unwrap returns the sink behind.
func (t tracedSink) Unwrap() alert.Alerter { return t.Alerter }

func (t tracedSink) Alert(ctx context.Context, e alert.Event) error {
	d := traces.Deadline{EventID: e.ID, Message: e.Traceparent, Send: e.SendTraceparent}
	tracer := t.tracer
	switch e.Type {
	case alert.TypeMissed:
		d.Verdict = "missed"
	case alert.TypeIncomplete:
		d.Verdict = "incomplete"
	default: // nothing was missed
		tracer = nil
	}
	if t.records {
		describe(&d, &e.Data)
		tracer.Missed(&d)
	}
	e.Traceparent = tracer.Context(&d).String()
	return t.Alerter.Alert(ctx, e)
}

// describe takes into the span what the event says.
func describe(d *traces.Deadline, of *alert.EventData) {
	d.Entity, d.Subscription, d.MessageID, d.Due, d.Seen = of.Entity, of.Subscription, of.MessageID, of.Deadline, of.Deadline.Add(of.Lag())
	d.About = []attribute.KeyValue{
		attribute.Int64("messaging.servicebus.message.delivery_count", int64(of.DeliveryCount)),
		attribute.Int64("messaging.servicebus.message.enqueued_time", of.EnqueuedTime.Unix()),
		attribute.Int64("overdue.sequence_number", of.SequenceNumber),
	}
	for _, a := range []struct{ key, value string }{
		{"messaging.message.conversation_id", of.CorrelationID}, {"overdue.session_id", of.SessionID}, {"overdue.evidence", of.Evidence},
		{"overdue.strategy", of.Strategy}, {"overdue.dead_letter_reason", of.DeadLetterReason}, {"overdue.state", of.State},
	} {
		if a.value != "" {
			d.About = append(d.About, traces.Text(a.key, a.value))
		}
	}
}
