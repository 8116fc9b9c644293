// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"cmp"
	"time"

	"overdue/alert"
	"overdue/internal/servicebus/address"
	"overdue/scheduler"
)

// EventOf returns the event about m, the message of ref, on the entity with that path.
func EventOf(namespace, entity string, ref *scheduler.Reference, m *scheduler.Missed) alert.Event {
	name, subscription := address.SplitSubscription(entity)
	before := time.Duration(m.WarnBeforeMs) * time.Millisecond
	e := alert.Event{
		Type: cmp.Or(m.Type, alert.TypeMissed), Source: alert.SourceOf(namespace, entity), Subject: address.MessageName(ref.MessageID, m.SequenceNumber),
		Time: m.DeadLetteredTime.UTC(), Traceparent: m.Traceparent, SendTraceparent: ref.Traceparent,
		Data: alert.EventData{
			Entity: name, Subscription: subscription, MessageID: ref.MessageID, SessionID: ref.SessionID,
			SequenceNumber: m.SequenceNumber, EnqueuedTime: m.EnqueuedTime.UTC(), Deadline: m.Deadline.UTC(), DeadlineKind: alert.KindReceived,
			LagMs:    m.DeadLetteredTime.Sub(m.Deadline.Add(-before)).Milliseconds(),
			Strategy: m.Strategy, Evidence: m.Evidence, DeadLetterReason: m.DeadLetterReason,
			CorrelationID: m.CorrelationID, DeliveryCount: m.DeliveryCount, State: m.State, WarnBeforeMs: m.WarnBeforeMs,
		},
	}
	if m.Type == alert.TypeIncomplete {
		e.Data.DeadlineKind = alert.KindCompleted
	}
	if m.Type != "" { // a reminder
		e.ID = alert.IDOfReminder(m.Type, entity, m.SequenceNumber, m.EnqueuedTime, before)
		return e
	}
	e.ID, e.Data.DeadLetteredTime = alert.IDOf(entity, m.SequenceNumber, m.EnqueuedTime), m.DeadLetteredTime.UTC()
	return e
}
