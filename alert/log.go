// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"context"
	"fmt"

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
	sentence := e.sentence()
	if e.Data.Muted {
		sentence += ", muted"
	}
	a.log.Warn(sentence, zap.Inline(logFields{&e}))
	if debug := a.log.Check(zap.DebugLevel, "event"); debug != nil {
		debug.Write(zap.Reflect("event", e))
	}
	return nil
}

// logFields are what the line of an event has for searches. A terminal shows its sentence alone.
type logFields struct{ event *Event }

// MarshalLogObject adds the fields.
func (f logFields) MarshalLogObject(o zapcore.ObjectEncoder) error {
	if b := f.event.Blind; b != nil {
		return o.AddReflected("blind", b)
	}
	d := &f.event.Data
	o.AddString("work_queue", d.Path())
	o.AddString("message_id", d.MessageID)
	o.AddInt64("sequence_number", d.SequenceNumber)
	o.AddTime("deadline", d.Deadline)
	o.AddString("verdict", shortType(f.event.Type))
	addStated(o, "strategy", d.Strategy)
	addStated(o, "evidence", d.Evidence)
	o.AddDuration("lag", d.Lag())
	if d.Muted {
		o.AddBool("muted", true)
	}
	if len(d.Labels) == 0 {
		return nil
	}
	return o.AddReflected("labels", d.Labels)
}

// addStated adds a field unless it is empty.
func addStated(o zapcore.ObjectEncoder, key, value string) {
	if value != "" {
		o.AddString(key, value)
	}
}

// sentence says what happened to which message.
func (e *Event) sentence() string {
	if b := e.Blind; b != nil {
		return fmt.Sprintf("blind: no deadline was seen %s: %s; %s", b.span(), b.Reason, b.outcome())
	}
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
