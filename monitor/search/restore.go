// SPDX-License-Identifier: Apache-2.0

package search

import (
	"context"

	"overdue/internal/servicebus/link"
)

// A dead letter keeps the sequence number of its message ("Message sequencing and timestamps"), and
// its enqueued-time, as one probe of a live namespace has shown. Until one of an entity has shown
// it, a View of dead letters expects others: it gives a letter back what its message had on the
// work queue, so that it has one identity. Then its numbers are not in the order of time.

// restore returns m with the number and the stamp under which its message was seen on the work
// queue. The other of the two must still be the same, and what it states of its deadline, and the
// message-id must not repeat.
func (v *View) restore(m *link.Message) *link.Message {
	was, own := v.Seen.Waiting(m.MessageID, limitOf(m)), IdentityOf(m)
	if was.Number == 0 || was == own || was.Number != own.Number && was.Enqueued != own.Enqueued {
		return m
	}
	v.Cursor, v.Restored = true, true
	restored := *m
	restored.SequenceNumber, restored.EnqueuedTime = was.Number, was.EnqueuedTime().UTC()
	return &restored
}

// restoreAll restores the messages of a page in place. It reports whether any may differ.
func (v *View) restoreAll(page []*link.Message) bool {
	if v.Differ == nil || !v.Differ() {
		return false
	}
	for i, m := range page {
		page[i] = v.restore(m)
	}
	return true
}

// FindAnywhere searches the first pages for messages that may stand under other numbers or stamps
// than those that they had.
func (v *View) FindAnywhere(ctx context.Context, wants []*Want, better Chooser) error {
	if len(wants) == 0 {
		return nil
	}
	byID, pages := ByMessageID(wants), 0
	return v.everywhere(ctx, func(page []*link.Message) (more bool) {
		for _, m := range page {
			for _, w := range byID[m.MessageID] {
				if w.Found == nil && better(w, m) {
					w.Found = m
					break
				}
			}
		}
		pages++
		return pages < maxKeptPages
	})
}
