// SPDX-License-Identifier: Apache-2.0

package search

import (
	"context"
	"slices"
	"sort"
	"time"

	"overdue/internal/servicebus/link"
)

// proofHolds is for how long the proof of an index holds. Service Bus detaches the links of a
// deleted entity. If one survives, this bounds how long the index may mislead.
const proofHolds = time.Second

// An indexPoint is the enqueued-time of one sequence number. It stays true when the message is
// gone, as long as its queue exists.
type indexPoint struct {
	Number   int64
	Enqueued time.Time
}

func pointOf(m *link.Message) indexPoint { return indexPoint{m.SequenceNumber, m.EnqueuedTime} }

// A sequenceIndex is points in the order of sequence numbers, which is the order of time. It has
// PageSize of them at most. When it is full, every second one is dropped, so that it still spans
// the queue.
type sequenceIndex []indexPoint

func (x *sequenceIndex) add(p indexPoint) {
	if len(*x) == PageSize {
		i := 0
		*x = slices.DeleteFunc(*x, func(indexPoint) bool { i++; return i%2 == 0 })
	}
	i := sort.Search(len(*x), func(i int) bool { return (*x)[i].Number >= p.Number })
	if i == len(*x) || (*x)[i].Number != p.Number {
		*x = slices.Insert(*x, i, p)
	}
}

// proveIndex drops the index unless it proves to be of the queue that v reads. When an entity is
// deleted and recreated under its name, its sequence numbers start at 1 again, and the points of
// the old one would hide the new messages. The oldest message proves the index if it is as old as
// one of the points. With a lower number than one of them and a later stamp, it is of a new queue.
func (v *View) proveIndex(ctx context.Context) error {
	if v.peeker != nil && time.Since(v.proven) < proofHolds {
		return nil
	}
	index := v.index
	v.index = nil // the points of the page that proves the others would prove themselves
	v.proven = time.Now()
	if len(index) == 0 {
		return nil
	}
	page, err := v.Peek(ctx, 0, 1)
	switch {
	case err != nil:
		v.index = index
		return err
	case len(page) == 0: // the points would lead to nothing, or past what comes first
		return nil
	}
	oldest := page[0]
	isRecreated := slices.ContainsFunc(index, func(p indexPoint) bool {
		return p.Number >= oldest.SequenceNumber && oldest.EnqueuedTime.Sub(p.Enqueued) > SettledAge
	})
	switch {
	case !isRecreated && !oldest.EnqueuedTime.After(index[len(index)-1].Enqueued):
		v.index = index
	case isRecreated && v.Recreated != nil:
		v.Recreated("its numbers")
	}
	return nil
}
