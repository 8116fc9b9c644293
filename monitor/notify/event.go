// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"cmp"
	"encoding/json"
	"time"

	"overdue/alert"
	"overdue/internal/servicebus/address"
	"overdue/scheduler"
)

// EventOf returns the event about m, the message of ref, on the entity with that path.
func EventOf(namespace, entity string, ref *scheduler.Reference, m *scheduler.Missed) alert.Event {
	if b, ok := parseBlind(m.Notice); ok && m.Type == alert.TypeBlind {
		return alert.NewBlind(namespace, ref.MessageID, b)
	}
	name, subscription := address.SplitSubscription(entity)
	before := time.Duration(m.WarnBeforeMs) * time.Millisecond
	e := alert.Event{
		Type:            cmp.Or(m.Type, alert.TypeMissed),
		Source:          alert.SourceOf(namespace, entity),
		ID:              alert.IDOf(entity, m.SequenceNumber, m.EnqueuedTime),
		Subject:         address.MessageName(ref.MessageID, m.SequenceNumber),
		Time:            m.DeadLetteredTime.UTC(),
		Traceparent:     m.Traceparent,
		SendTraceparent: ref.Traceparent,
		Data: alert.EventData{
			Entity:           name,
			Subscription:     subscription,
			MessageID:        ref.MessageID,
			SessionID:        ref.SessionID,
			SequenceNumber:   m.SequenceNumber,
			EnqueuedTime:     m.EnqueuedTime.UTC(),
			Deadline:         m.Deadline.UTC(),
			DeadlineKind:     alert.KindReceived,
			DeadLetteredTime: m.DeadLetteredTime.UTC(),
			LagMs:            m.DeadLetteredTime.Sub(m.Deadline.Add(-before)).Milliseconds(),
			Strategy:         m.Strategy,
			Evidence:         m.Evidence,
			DeadLetterReason: m.DeadLetterReason,
			CorrelationID:    m.CorrelationID,
			DeliveryCount:    m.DeliveryCount,
			State:            m.State,
			WarnBeforeMs:     m.WarnBeforeMs,
		},
	}
	if m.Type == alert.TypeIncomplete {
		e.Data.DeadlineKind = alert.KindCompleted
	}
	if isReminder := m.Type != ""; isReminder {
		e.ID = alert.IDOfReminder(m.Type, entity, m.SequenceNumber, m.EnqueuedTime, before)
		e.Data.DeadLetteredTime = time.Time{}
	}
	return e
}

// parseBlind reads the data of an event of [alert.TypeBlind], which may come from outside.
func parseBlind(notice []byte) (b alert.Blind, ok bool) {
	if len(notice) == 0 || json.Unmarshal(notice, &b) != nil {
		return b, false
	}
	return b, b.To.After(b.From) && len(b.Entities) <= alert.MaxBlindEntities
}

// IsBlind reports whether a notice is the data of an event of [alert.TypeBlind].
func IsBlind(notice []byte) bool {
	_, ok := parseBlind(notice)
	return ok
}
