// SPDX-License-Identifier: Apache-2.0

package search

import (
	"time"

	"overdue/internal/servicebus/link"
)

// An Identity tells a message of an entity from all others: its sequence number, with the stamp
// that the broker made at the same time. A sequence number alone does not, since they start at
// 1 again when an entity is recreated. A dead letter keeps both
// (learn.microsoft.com/azure/service-bus-messaging/message-sequencing). The zero identity is of
// no message.
type Identity struct {
	Number   int64
	Enqueued int64 // Unix milliseconds
}

// EnqueuedTime is the stamp.
func (s Identity) EnqueuedTime() time.Time { return time.UnixMilli(s.Enqueued) }

// After reports whether i is later than o.
func (s Identity) After(o Identity) bool {
	return s.Enqueued > o.Enqueued || s.Enqueued == o.Enqueued && s.Number > o.Number
}

func IdentityOf(m *link.Message) Identity {
	return Identity{m.SequenceNumber, m.EnqueuedTime.UnixMilli()}
}

// maxMarks bounds Marks. All are dropped at once, and found out again.
const maxMarks = 1 << 14

// Marks keep an instant for each of some messages.
type Marks map[Identity]time.Time

// Set sets that of the message at.
func (m *Marks) Set(at Identity, t time.Time) {
	if *m == nil || len(*m) == maxMarks {
		*m = Marks{}
	}
	(*m)[at] = t
}
