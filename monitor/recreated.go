// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"time"

	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/link"

	"go.uber.org/zap"
)

// When an entity is deleted and recreated under its name, its sequence numbers start at 1
// again. Nothing that is known of the old entity may hide a message of the new one:
//
//   - A message is told apart by its identity, never by its sequence number alone.
//   - A sequence index is proven before use, by a message that is as old as one of its points.
//     A new queue has none.
//   - forget drops everything else, as soon as anything shows that the entity was recreated.

// proofHolds is for how long the proof of a sequence index holds. Service Bus detaches the
// links of a deleted entity. If one survives, this bounds how long the index may mislead.
const proofHolds = time.Second

// forget drops what is known of e, which was deleted or recreated. It keeps the links of the
// views: those of a deleted entity end by themselves.
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

// noteCreation records when e was created.
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

// provenIndex returns the index of v, once it has proven that it is of the queue that v reads:
// the oldest message is as old as one of its points. Otherwise it drops the index, which costs
// a few peeks. If the oldest message contradicts the index, the queue was recreated.
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

// contradict reports whether m cannot be of the queue of l: it has a lower sequence number than
// one of the points and was enqueued later, by more than clocks of nodes differ.
func (l sequenceIndex) contradict(m *link.Message) bool {
	for i := len(l) - 1; i >= 0 && l[i].number >= m.SequenceNumber; i-- {
		if m.EnqueuedTime.Sub(l[i].enqueued) > settledAge {
			return true
		}
	}
	return false
}
