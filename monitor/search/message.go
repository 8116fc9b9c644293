// SPDX-License-Identifier: Apache-2.0

package search

import (
	"time"

	"overdue/internal/servicebus/link"
	"overdue/scheduler"
)

const (
	// StampPrecision is the unit of AMQP timestamps. The instant itself may be later by up to that.
	StampPrecision = time.Millisecond
	// WindowMargin widens the window in which a message is searched for, since the clocks of broker
	// nodes may differ. It MUST NOT be less than takeWindow of the scheduler.
	WindowMargin = 250 * time.Millisecond
	// SettledAge is the age at which a range of enqueued-times is final: no message can be enqueued
	// in it any more.
	SettledAge = 2 * time.Second
	// ReasonExpired is the dead-letter reason of messages that the broker has expired ("Overview of
	// Service Bus dead-letter queues").
	ReasonExpired = "TTLExpiredException"
)

// Forever ends the window of a reference whose sender had not measured the clock of the broker.
var Forever = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// An Identity distinguishes a message of an entity from all others: its sequence number, with the
// stamp that the broker made at the same time. A sequence number alone does not, since they start
// at 1 again when an entity is recreated. A dead letter keeps both
// (learn.microsoft.com/azure/service-bus-messaging/message-sequencing). The zero identity is of
// no message.
type Identity struct {
	Number   int64
	Enqueued int64 // Unix milliseconds
}

// IdentityOf returns the identity of m.
func IdentityOf(m *link.Message) Identity {
	return Identity{m.SequenceNumber, m.EnqueuedTime.UnixMilli()}
}

// EnqueuedTime is the stamp.
func (i Identity) EnqueuedTime() time.Time { return time.UnixMilli(i.Enqueued) }

// Pending reports whether m is scheduled and not activated yet. Its state does not show that,
// since it may remain "scheduled". Its stamp does: until the activation it is that of the send
// ("Message sequencing and timestamps").
func Pending(m *link.Message) bool {
	activated := m.ScheduledEnqueueTime
	if second := m.EnqueuedTime.Truncate(time.Second); second.Equal(m.EnqueuedTime) {
		activated = activated.Truncate(time.Second) // stamps may be whole seconds
	}
	return m.State == link.Scheduled && m.EnqueuedTime.Before(activated)
}

// StatesDeadline reports whether m has a deadline in its properties, valid or not.
func StatesDeadline(m *link.Message) bool {
	at, within, err := scheduler.StatedDeadline(func(name string) any { return m.Properties[name] })
	return err != nil || !at.IsZero() || within > 0
}
