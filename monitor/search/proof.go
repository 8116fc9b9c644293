// SPDX-License-Identifier: Apache-2.0

package search

import (
	"context"
	"time"

	"overdue/internal/servicebus/link"
)

// When an entity is deleted and recreated under its name, its sequence numbers start at 1
// again. Nothing that is known of the old entity may hide a message of the new one:
//
//   - A message is distinguished by its identity, never by its sequence number alone.
//   - A sequence index is proven before use, by a message that is as old as one of its points.
//     A new queue has none.
//   - forget drops everything else, as soon as anything shows that the entity was recreated.

// SettledAge is the age at which a range of enqueued-times is final: no message can be enqueued
// in it any more.
const SettledAge = 2 * time.Second

// proofHolds is for how long the proof of a sequence index holds. Service Bus detaches the
// links of a deleted entity. If one survives, this bounds how long the index may mislead.
const proofHolds = time.Second

// provenIndex returns the index of v, once it has proven that it is of the queue that v reads:
// the oldest message is as old as one of its points. Otherwise it drops the index, which costs
// a few peeks. If the oldest message contradicts the index, the queue was recreated.
func (v *View) provenIndex(ctx context.Context) (SequenceIndex, error) {
	switch {
	case len(v.Index) == 0:
		v.proven = time.Now() // what it will have is read from now on
		return nil, nil
	case v.peeker != nil && time.Since(v.proven) < proofHolds:
		return v.Index, nil
	}
	marks := v.Index
	v.Index = nil // or those of the page that proves it would prove themselves
	page, err := v.Peek(ctx, 0, 1)
	if err != nil {
		v.Index = marks
		return nil, err
	}
	v.proven = time.Now()
	if len(page) == 0 {
		return nil, nil // they would lead to nothing, or past what comes first
	}
	if oldest := page[0]; !oldest.EnqueuedTime.After(marks[len(marks)-1].Enqueued) && !marks.contradict(oldest) {
		v.Index = marks
		return marks, nil
	}
	switch {
	case !marks.contradict(page[0]):
	case v.Differ != nil && v.Differ(): // or dead letters are enqueued again
		v.Cursor = true
		return nil, ErrPartitioned
	case v.Recreated != nil:
		v.Recreated("its numbers")
	}
	return v.Index, nil
}

// contradict reports whether m cannot be of the queue of l: it has a lower sequence number than
// one of the points and was enqueued later, by more than clocks of nodes differ.
func (l SequenceIndex) contradict(m *link.Message) bool {
	for i := len(l) - 1; i >= 0 && l[i].Number >= m.SequenceNumber; i-- {
		if m.EnqueuedTime.Sub(l[i].Enqueued) > SettledAge {
			return true
		}
	}
	return false
}
