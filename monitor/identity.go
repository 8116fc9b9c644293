// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"time"

	"overdue/internal/servicebus/link"
)

// An identity tells a message of an entity from all others: its sequence number, with the stamp
// that the broker made at the same time. A sequence number alone does not, since they start at
// 1 again when an entity is recreated. A dead letter keeps both
// (learn.microsoft.com/azure/service-bus-messaging/message-sequencing). The zero identity is of
// no message.
type identity struct {
	number   int64
	enqueued int64 // Unix milliseconds
}

// enqueuedTime is the stamp.
func (s identity) enqueuedTime() time.Time { return time.UnixMilli(s.enqueued) }

// after reports whether i is later than o.
func (s identity) after(o identity) bool {
	return s.enqueued > o.enqueued || s.enqueued == o.enqueued && s.number > o.number
}

func identityOf(m *link.Message) identity {
	return identity{m.SequenceNumber, m.EnqueuedTime.UnixMilli()}
}
