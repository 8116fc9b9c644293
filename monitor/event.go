// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"time"

	"overdue/alert"
)

// eventOf returns the event about wt, on the entity with that path.
func (w *Worker) eventOf(entity string, wt *watch) alert.Event {
	m := wt.missed
	if m.Type != "" {
		return w.reminderEvent(entity, wt)
	}
	name, subscription := splitPath(entity)
	return alert.Event{
		ID: alert.IDOf(entity, m.SequenceNumber, m.EnqueuedTime), Type: alert.TypeMissed,
		Source: w.source(entity), Subject: wt.ref.MessageID, Time: m.DeadLetteredTime.UTC(),
		Data: alert.EventData{
			Entity: name, Subscription: subscription, MessageID: wt.ref.MessageID, SessionID: wt.ref.SessionID,
			SequenceNumber: m.SequenceNumber, EnqueuedTime: m.EnqueuedTime.UTC(), Deadline: m.Deadline.UTC(), DeadlineKind: alert.KindReceived,
			DeadLetteredTime: m.DeadLetteredTime.UTC(), LagMs: m.DeadLetteredTime.Sub(m.Deadline).Milliseconds(),
			Strategy: m.Strategy, Evidence: m.Evidence, DeadLetterReason: m.DeadLetterReason,
			CorrelationID: m.CorrelationID, DeliveryCount: m.DeliveryCount,
		},
	}
}

func (w *Worker) source(entity string) string { return alert.SourceOf(w.cfg.Namespace, entity) }

func (e *entity) eventID(number int64, enqueued time.Time) string {
	return alert.IDOf(e.name, number, enqueued)
}
