// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"context"
	"fmt"

	"go.uber.org/zap"
)

// NewLog returns an Alerter that logs each event: the message is one sentence for people, the field
// "event" the CloudEvent.
func NewLog(log *zap.Logger) Alerter { return logAlerter{log} }

type logAlerter struct{ log *zap.Logger }

func (logAlerter) Name() string { return "log" }

// Local says that Alert waits for nothing on the network, so that several at once gain nothing.
func (logAlerter) Local() {}

func (a logAlerter) Alert(_ context.Context, e Event) error {
	a.log.Warn(e.sentence(), zap.Any("event", e))
	return nil
}

// sentence says what happened to which message.
func (e *Event) sentence() string {
	d := &e.Data
	message := d.Entity + "/"
	if d.Subscription != "" {
		message += d.Subscription + "/"
	}
	message += e.Subject
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
