// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"time"

	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/link"

	"go.uber.org/zap"
)

// What is known of an entity is known of one that was made at a certain time. When it is deleted and recreated under its name its
// numbers begin at 1 again, and nothing of that may hide the new messages. Three things see to it:
//
//   - A message is notified by its identity, never by its number alone, whoever keeps it in mind.
//   - What says which numbers stand where (index points) is proven before it is used, by a message that is as old as one of them: the
//     queue that is recreated has none.
//   - Everything else goes with forget, as soon as somebody notices.

// proofHolds is for how long a proof that a view reads the queue that its index points are of holds good while its link does. Service Bus
// detaches the links of an entity that is deleted; should one survive, that bounds how long it may mislead.
const proofHolds = time.Second

// forget drops what is known of e, which has been deleted, or recreated. Only the views' links stay: those of what was deleted end by
// themselves. Whatever is in hand is searched for on the new one.
func (e *entity) forget(why string) {
	if len(e.work.index)+len(e.dead.index)+len(e.ranges.known) > 0 {
		e.log.Info("entity was recreated or deleted: cached state dropped", zap.String("noticed_by", why))
	}
	e.ranges, e.seen, e.adoptedDuplicates = rangeCache{}, seenIDs{}, nil
	for _, v := range []*view{&e.work, &e.dead, &e.transfer} {
		v.index, v.lastExpired = nil, seenDeadLetter{}
	}
	e.w.states.update(e.key, func(f *entityState) { *f = entityState{created: f.created, warned: f.warned, missing: f.missing} })
	e.settingsAsOf = time.Now()
}

// noteCreation takes note of when e was made, as far as the namespace shows.
func (e *entity) noteCreation(info *entities.Info, subscription *entities.Subscription) {
	at := info.CreatedAt
	if subscription != nil {
		at = subscription.CreatedAt
	}
	before := e.w.states.get(e.key).created
	if at.IsZero() || at.Equal(before) {
		return
	}
	e.w.states.update(e.key, func(f *entityState) { f.created = at })
	if !before.IsZero() {
		e.forget("its creation time")
	}
}

// provenIndex are the marks of v, once it is proven that they are of the queue that v reads: by its oldest message, which is as old as
// one of them. Without that they are dropped, which costs some peeks where they were right. One that contradicts them proves the opposite.
func (v *view) provenIndex(ctx context.Context) (sequenceIndex, error) {
	if len(v.index) == 0 || v.peeker != nil && time.Since(v.proven) < proofHolds {
		return v.index, nil
	}
	marks := v.index
	v.index = nil // or those of the page that proves it would prove themselves
	page, err := v.peek(ctx, 0, 1)
	if err != nil {
		v.index = marks
		return nil, err
	}
	v.proven = time.Now()
	if len(page) == 0 {
		return nil, nil // they would lead to nothing, or past what comes first
	}
	if oldest := page[0]; !oldest.EnqueuedTime.After(marks[len(marks)-1].enqueued) && !marks.contradict(oldest) {
		v.index = marks
		return marks, nil
	}
	if marks.contradict(page[0]) && v.recreated != nil {
		v.recreated("its numbers")
	}
	return v.index, nil
}

// contradict reports whether m cannot stand on the queue that l is of: it has a number as low as one of them and was enqueued later, by
// more than clocks of several nodes may differ.
func (l sequenceIndex) contradict(m *link.Message) bool {
	for i := len(l) - 1; i >= 0 && l[i].number >= m.SequenceNumber; i-- {
		if m.EnqueuedTime.Sub(l[i].enqueued) > settledAge {
			return true
		}
	}
	return false
}
