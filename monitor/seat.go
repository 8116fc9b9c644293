// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"time"

	"overdue/internal/servicebus/link"
)

// A seat is what tells one message of an entity from every other: its sequence number, with the stamp that the broker made when it gave
// it. A number alone does not: they begin at 1 again when an entity is deleted and made anew under its name. A dead letter keeps both
// (learn.microsoft.com/azure/service-bus-messaging/message-sequencing). The zero seat is of no message.
type seat struct {
	number   int64
	enqueued int64 // Unix milliseconds
}

// at is the stamp.
func (s seat) at() time.Time { return time.UnixMilli(s.enqueued) }

// behind reports whether s was given later than o.
func (s seat) behind(o seat) bool {
	return s.enqueued > o.enqueued || s.enqueued == o.enqueued && s.number > o.number
}

func seatOf(m *link.Message) seat { return seat{m.SequenceNumber, m.EnqueuedTime.UnixMilli()} }
