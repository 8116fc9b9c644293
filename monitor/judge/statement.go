// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"strings"
	"time"

	"overdue/internal/servicebus/link"
	"overdue/scheduler"
)

// StatedDeadline returns the deadline that m states in a property, and how. What the proxy would
// refuse as invalid states none.
func StatedDeadline(m *link.Message) (how string, deadline time.Time) {
	at, within, err := scheduler.StatedDeadline(func(name string) any { return m.Properties[name] })
	switch {
	case err == nil && !at.IsZero():
		return "deadline", at
	case err == nil && within > 0:
		return "within", m.EnqueuedTime.Add(within)
	}
	return "", time.Time{}
}

// HowStated returns how m states its deadline, by the rules of the proxy, and the deadline.
func HowStated(m *link.Message, s Settings) (how string, deadline time.Time) {
	how, deadline = StatedDeadline(m)
	switch {
	case how != "":
		return how, deadline
	case m.TimeToLive > 0:
		return "ttl", m.EnqueuedTime.Add(m.TimeToLive)
	case s.Deadline > 0:
		return "entity", m.EnqueuedTime.Add(s.Deadline)
	}
	return "default", time.Time{}
}

// statedBy returns the deadline that m states. It does not rely on the reference: if a message-id
// repeats, that may stand for another message. Only a deadline that the entity gave it comes from
// the reference, since no message states it. Zero: m states none.
func statedBy(r *scheduler.Reference, m *link.Message, s Settings) time.Time {
	how, at := HowStated(m, s)
	expiry, mortal := NativeExpiry(r, m, s)
	switch {
	case how != "default":
		return at
	case mortal:
		return expiry
	case r.Stated == scheduler.StatedComplete:
		return time.Time{}
	}
	return r.DeadlineAt(m.EnqueuedTime)
}

// CompleteBy returns when m must be completed; zero: never. As with the deadline, the statement of
// the message comes first, then the entity, then the reference.
func CompleteBy(r *scheduler.Reference, m *link.Message, s Settings) time.Time {
	within := statedCompletion(m, s)
	switch {
	case within > 0:
		return m.EnqueuedTime.Add(within)
	case r.CompleteWithin > 0:
		return m.EnqueuedTime.Add(r.CompleteWithin)
	case r.Stated == scheduler.StatedComplete:
		return r.DeadlineAt(m.EnqueuedTime)
	}
	return time.Time{}
}

// statedCompletion returns within what time m must be completed, as it states, or its entity; 0:
// neither.
func statedCompletion(m *link.Message, s Settings) time.Duration {
	if within, err := scheduler.StatedCompletion(func(name string) any { return m.Properties[name] }); err == nil && within > 0 {
		return within
	}
	return s.CompleteWithin
}

// Missed describes m, whose deadline was missed or is notified of. Service Bus does not bound the
// correlation-id.
func Missed(m *link.Message, deadline time.Time) *scheduler.Missed {
	return &scheduler.Missed{
		SequenceNumber: m.SequenceNumber,
		EnqueuedTime:   m.EnqueuedTime,
		Deadline:       deadline,
		DeliveryCount:  m.DeliveryCount,
		CorrelationID:  strings.ToValidUTF8(m.CorrelationID[:min(len(m.CorrelationID), 512)], ""),
		Traceparent:    m.Traceparent(),
	}
}
