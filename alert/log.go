// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"context"
	"fmt"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// NewLog returns an Alerter that logs each event as a warning: one sentence for people, with
// fields for searches, inline. The level debug also logs the whole CloudEvent.
func NewLog(log *zap.Logger) Alerter { return logAlerter{log} }

type logAlerter struct{ log *zap.Logger }

func (logAlerter) Name() string { return "log" }

// Local says that Alert waits for nothing on the network, so that several at once gain nothing.
func (logAlerter) Local() {}

func (a logAlerter) Alert(_ context.Context, e Event) error {
	a.log.Warn(e.sentence(), zap.Inline(logFields{&e}))
	a.log.Debug("event", zap.Object("event", e))
	return nil
}

// logFields are what the line of an event has for searches. A terminal shows its sentence alone.
type logFields struct{ event *Event }

// MarshalLogObject adds the fields.
func (f logFields) MarshalLogObject(o zapcore.ObjectEncoder) error {
	d := &f.event.Data
	o.AddString("work_queue", d.Path())
	o.AddString("message_id", d.MessageID)
	o.AddInt64("sequence_number", d.SequenceNumber)
	o.AddTime("deadline", d.Deadline)
	o.AddString("verdict", strings.TrimPrefix(f.event.Type, typePrefix))
	addStated(o, "strategy", d.Strategy)
	addStated(o, "evidence", d.Evidence)
	o.AddDuration("lag", d.Lag())
	return nil
}

// MarshalLogObject adds what MarshalJSON returns, without reflection: the log gets every event.
func (e Event) MarshalLogObject(o zapcore.ObjectEncoder) error {
	o.AddString("specversion", specVersion)
	o.AddString("id", e.ID)
	o.AddString("type", e.Type)
	o.AddString("source", e.Source)
	addStated(o, "subject", e.Subject)
	o.AddTime("time", e.Time)
	o.AddString("datacontenttype", dataContentType)
	addStated(o, "traceparent", e.Traceparent)
	return o.AddObject("data", &e.Data)
}

// MarshalLogObject is part of that of the event.
func (d *EventData) MarshalLogObject(o zapcore.ObjectEncoder) error {
	o.AddString("entity", d.Entity)
	addStated(o, "subscription", d.Subscription)
	o.AddString("messageId", d.MessageID)
	addStated(o, "sessionId", d.SessionID)
	o.AddInt64("sequenceNumber", d.SequenceNumber)
	o.AddTime("enqueuedTime", d.EnqueuedTime)
	o.AddTime("deadline", d.Deadline)
	o.AddString("deadlineKind", d.DeadlineKind)
	if !d.DeadLetteredTime.IsZero() {
		o.AddTime("deadLetteredTime", d.DeadLetteredTime)
	}
	o.AddInt64("lagMs", d.LagMs)
	addStated(o, "strategy", d.Strategy)
	addStated(o, "evidence", d.Evidence)
	addStated(o, "deadLetterReason", d.DeadLetterReason)
	if d.WarnBeforeMs != 0 {
		o.AddInt64("warnBeforeMs", d.WarnBeforeMs)
	}
	addStated(o, "state", d.State)
	addStated(o, "correlationId", d.CorrelationID)
	o.AddUint32("deliveryCount", d.DeliveryCount)
	return nil
}

// addStated adds a field unless it is empty.
func addStated(o zapcore.ObjectEncoder, key, value string) {
	if value != "" {
		o.AddString(key, value)
	}
}

// sentence says what happened to which message.
func (e *Event) sentence() string {
	d := &e.Data
	message := d.Path() + "/" + e.Subject
	switch e.Type {
	case TypeMissed:
		s := fmt.Sprintf("deadline missed: %s, %s late", message, roughly(d.Lag()))
		if d.DeadLetterReason != "" {
			s += fmt.Sprintf(", dead-lettered (%s)", d.DeadLetterReason)
		}
		return s
	case TypeIncomplete:
		return fmt.Sprintf("message not completed in time: %s, %s late, still %s", message, roughly(d.Lag()), d.State)
	case TypeNear:
		return fmt.Sprintf("deadline near: %s, due %s", message, stamp(d.Deadline))
	}
	return fmt.Sprintf("%s: %s", e.Type, message)
}
