// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"time"

	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/link"

	"go.uber.org/zap"
)

// What is known of an entity is known of one that was made at a certain time. When it is deleted and made anew under its name its
// numbers begin at 1 again, and nothing of that may hide the new messages. Three things see to it:
//
//   - A message is told by its seat, never by its number alone, whoever keeps it in mind.
//   - What says which numbers stand where (landmarks) is proven before it is used, by a message that is as old as one of them: the
//     queue that is made anew has none.
//   - Everything else goes with forget, as soon as somebody notices.

// proofHolds is for how long a proof that a view reads the queue that its landmarks are of holds good while its link does. Service Bus
// detaches the links of an entity that is deleted; should one survive, that bounds how long it may mislead.
const proofHolds = time.Second

// forget drops what is known of e, which has been deleted, or made anew. Only the views' links stay: those of what was deleted end by
// themselves. Whatever is in hand is looked for on the new one.
func (e *entity) forget(why string) {
	if len(e.work.marks)+len(e.dead.marks)+len(e.shelf.kept) > 0 {
		e.log.Info("entity was made anew, or is gone: what was known of it is forgotten", zap.String("noticed_by", why))
	}
	e.shelf, e.memory, e.adopted = shelf{}, memory{}, nil
	for _, v := range []*view{&e.work, &e.dead, &e.transfer} {
		v.marks, v.latest = nil, letter{}
	}
	e.w.facts.learn(e.key, func(f *fact) { *f = fact{created: f.created, warned: f.warned, missing: f.missing} })
	e.settingsAsOf = time.Now()
}

// made takes note of when e was made, as far as the namespace tells.
func (e *entity) made(info *entities.Info, subscription *entities.Subscription) {
	at := info.CreatedAt
	if subscription != nil {
		at = subscription.CreatedAt
	}
	before := e.w.facts.of(e.key).created
	if at.IsZero() || at.Equal(before) {
		return
	}
	e.w.facts.learn(e.key, func(f *fact) { f.created = at })
	if !before.IsZero() {
		e.forget("its creation time")
	}
}

// landmarks are the marks of v, once it is proven that they are of the queue that v reads: by its oldest message, which is as old as
// one of them. Without that they are dropped, which costs some peeks where they were right. One that contradicts them proves the opposite.
func (v *view) landmarks(ctx context.Context) (landmarks, error) {
	if len(v.marks) == 0 || v.peeker != nil && time.Since(v.proven) < proofHolds {
		return v.marks, nil
	}
	marks := v.marks
	v.marks = nil // or those of the page that proves it would prove themselves
	page, err := v.peek(ctx, 0, 1)
	if err != nil {
		v.marks = marks
		return nil, err
	}
	v.proven = time.Now()
	if len(page) == 0 {
		return nil, nil // they would lead to nothing, or past what comes first
	}
	if oldest := page[0]; !oldest.EnqueuedTime.After(marks[len(marks)-1].enqueued) && !marks.contradict(oldest) {
		v.marks = marks
		return marks, nil
	}
	if marks.contradict(page[0]) && v.remade != nil {
		v.remade("its numbers")
	}
	return v.marks, nil
}

// contradict reports whether m cannot stand on the queue that l is of: it has a number as low as one of them and was enqueued later, by
// more than clocks of several nodes may differ.
func (l landmarks) contradict(m *link.Message) bool {
	for i := len(l) - 1; i >= 0 && l[i].number >= m.SequenceNumber; i-- {
		if m.EnqueuedTime.Sub(l[i].enqueued) > shelfAge {
			return true
		}
	}
	return false
}
