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
	// maxShelved bounds the messages that are remembered, to some 6 MiB. What is beyond is read each time, until slots have rung.
	maxShelved = 1 << 18
)

// A shelf is what was seen of a stretch of the work queue. What it has may have gone since; what it lacks had gone when the
// stretch was read.
type shelf struct {
	from, until time.Time // enqueued-times, both ends included; both zero = nothing was read
	defaultTTL  time.Duration
	messages    []shelved // that waited, and whose slots have not rung since
}

// shelved is one message, with its stamps in Unix milliseconds, which is what they are cut to.
type shelved struct{ number, enqueued, expiry int64 }

// times are when the message was enqueued and when it expires.
func (m shelved) times() (enqueued, expiry time.Time) {
	return time.UnixMilli(m.enqueued), time.UnixMilli(m.expiry)
}

// waitingIn calls see with the messages that wait on the work queue and were enqueued in the window. Of those that were seen
// before it calls noted instead.
func (e *entity) waitingIn(ctx context.Context, w *window, see func(*sblink.Message), noted func(shelved)) error {
	s := &e.shelf
	if s.until.Add(shelfGap).Before(w.from) || s.defaultTTL != e.traits.DefaultMessageTimeToLive {
		*s = shelf{from: w.from, until: w.from.Add(-stampGrain), defaultTTL: e.traits.DefaultMessageTimeToLive}
	}
	if e.work.cursor || w.until.Sub(w.from) < shelfFrom || w.until.Add(shelfGap).Before(s.from) {
		return e.work.between(ctx, w.from, w.until, see)
	}
	for _, m := range s.messages {
		if enqueued, _ := m.times(); w.holds(enqueued) {
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
	final := e.w.clock.now().Add(-shelfAge)
	var read []shelved
	err := e.work.between(ctx, from, until, func(m *sblink.Message) {
		at := m.EnqueuedTime
		if w.holds(at) {
			see(m)
		}
		if expiry, mortal := nativeExpiry(m, e.traits.Settings, at); mortal && !at.After(final) && len(read) <= maxShelved {
			read = append(read, shelved{m.SequenceNumber, at.UnixMilli(), expiry.UnixMilli()})
		}
	})
	if err != nil || e.work.cursor {
		return err
	}
	if until.After(final) {
		until = final
	}
	e.shelf.join(from, until, read)
	return nil
}

// join puts what was read of a stretch that ends where s begins, or begins where it ends, beside what is there, as far as there is room.
func (s *shelf) join(from, until time.Time, read []shelved) {
	if room := maxShelved - len(s.messages); len(read) > room {
		if from.Before(s.from) {
			return // it would have a gap
		}
		first := read[room].enqueued // of those that are left out, with all others of that instant
		read = slices.DeleteFunc(read, func(m shelved) bool { return m.enqueued >= first })
		until = time.UnixMilli(first).Add(-stampGrain)
	}
	s.messages = append(s.messages, read...)
	if from.Before(s.from) {
		s.from = from
	}
	s.until = later(s.until, until)
}

// clear forgets the messages whose slots have been looked for, and where there are many what no slot comes for any more, most likely:
// the stretch ends where the first of the windows begins, or somewhat before.
func (s *shelf) clear(windows []window) {
	old := s.from
	if len(s.messages) > maxShelved/2 {
		old = later(old, windows[0].from.Add(-shelfGap))
	}
	s.messages = slices.DeleteFunc(s.messages, func(m shelved) bool {
		enqueued, expiry := m.times()
		return enqueued.Before(old) || slices.ContainsFunc(windows, func(w window) bool { return w.holds(enqueued) && w.slotFor(enqueued, expiry) != nil })
	})
	s.from, s.until = old, later(s.until, old.Add(-stampGrain))
}
