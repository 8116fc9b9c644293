// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"slices"
	"time"

	"overdue/internal/sblink"
)

// Slots for spans of times to live ring fifty times a second, and the messages of each are found in the same stretch of the
// work queue, as long as the span is wide. What stands there was enqueued long ago, so nothing comes to it any more: it is read
// once, and remembered until the slots ring that its messages belong to.

const (
	// shelfFrom is how long a window is from which on it is remembered: what is shorter is read for one slot alone.
	shelfFrom = time.Second
	// shelfAge is how long ago the last message was enqueued that no other can come before.
	shelfAge = 2 * time.Second
	// shelfGap is how far apart windows may be that are remembered as one, with what lies between them.
	shelfGap = 10 * time.Second
	// maxShelved bounds the messages that are remembered, to some 5 MiB.
	maxShelved = 1 << 16
)

// A shelf is what was seen of a stretch of the work queue. What it has may have gone since; what it lacks had gone when the
// stretch was read.
type shelf struct {
	from, until time.Time // enqueued-times, both ends included; both zero = nothing was read
	defaultTTL  time.Duration
	messages    []shelved // that waited, and whose slots have not rung since
}

type shelved struct {
	number           int64
	enqueued, expiry time.Time
}

// waitingIn calls see with the messages that wait on the work queue and were enqueued in the window. Of those that were seen
// before it calls noted instead.
func (e *entity) waitingIn(ctx context.Context, w *window, see func(*sblink.Message), noted func(shelved)) error {
	s := &e.shelf
	if len(s.messages) > maxShelved || s.until.Add(shelfGap).Before(w.from) || s.defaultTTL != e.traits.DefaultMessageTimeToLive {
		*s = shelf{from: w.from, until: w.from.Add(-stampGrain), defaultTTL: e.traits.DefaultMessageTimeToLive}
	}
	if e.work.cursor || w.until.Sub(w.from) < shelfFrom || w.until.Add(shelfGap).Before(s.from) {
		return e.work.between(ctx, w.from, w.until, see)
	}
	for _, m := range s.messages {
		if w.holds(m.enqueued) {
			noted(m)
		}
	}
	if err := e.shelve(ctx, w.from, s.from.Add(-stampGrain), w, see); err != nil {
		return err
	}
	return e.shelve(ctx, s.until.Add(stampGrain), w.until, w, see)
}

// shelve reads what was enqueued from one instant until another, both included, beside what is on the shelf already.
func (e *entity) shelve(ctx context.Context, from, until time.Time, w *window, see func(*sblink.Message)) error {
	if until.Before(from) {
		return nil
	}
	s, final := &e.shelf, e.w.clock.now().Add(-shelfAge)
	var read []shelved
	err := e.work.between(ctx, from, until, func(m *sblink.Message) {
		if w.holds(m.EnqueuedTime) {
			see(m)
		}
		if expiry, mortal := nativeExpiry(m, e.traits.Settings, m.EnqueuedTime); mortal && !m.EnqueuedTime.After(final) {
			read = append(read, shelved{m.SequenceNumber, m.EnqueuedTime, expiry})
		}
	})
	if err != nil || e.work.cursor {
		return err
	}
	s.messages = append(s.messages, read...)
	if from.Before(s.from) {
		s.from = from
	}
	if until.After(final) {
		until = final
	}
	if until.After(s.until) {
		s.until = until
	}
	return nil
}

// clear forgets the messages whose slots have been looked for.
func (s *shelf) clear(windows []window) {
	s.messages = slices.DeleteFunc(s.messages, func(m shelved) bool {
		return slices.ContainsFunc(windows, func(w window) bool { return w.holds(m.enqueued) && w.slotFor(m.enqueued, m.expiry) != nil })
	})
}
