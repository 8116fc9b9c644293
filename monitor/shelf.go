// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"slices"
	"time"

	"overdue/internal/servicebus/link"
)

// Slots for spans of times to live ring fifty times a second, and the messages of each are found in the same stretch of the
// work queue, as long as the span is wide. What stands there was enqueued long ago, so nothing comes to it any more: it is read
// once, and remembered until the slots ring that its messages belong to.

const (
	// shelfFrom is how long a window is from which on it is remembered: what is shorter is read for one slot alone.
	shelfFrom = time.Second
	// shelfAge is how long ago the last message was enqueued that no other can come before.
	shelfAge = 2 * time.Second
	// shelfGap is how long before the first of the windows it is forgotten what is on a shelf that fills up.
	shelfGap = 10 * time.Second
	// maxShelved bounds the messages that are remembered, to some 6 MiB. What is beyond is read each time, until slots have rung.
	maxShelved = 1 << 18
	// maxStretches bounds the stretches between which nothing is known. Of more the oldest goes.
	maxStretches = 64
)

// A shelf is what was seen of some stretches of the work queue. It answers for those alone: of what lies in none of them it knows
// nothing, and the queue has to be read. What it has may have gone since; what it lacks had gone when the stretch was read.
type shelf struct {
	kept     []stretch // in order; they neither overlap nor touch
	messages []shelved // that waited in these, and whose slots have not rung since
}

// shelved is one message, with its stamp and its own time to live in Unix milliseconds.
type shelved struct{ number, enqueued, life int64 }

// message is as much of it as slots are told by.
func (m shelved) message() *link.Message {
	return &link.Message{SequenceNumber: m.number, EnqueuedTime: time.UnixMilli(m.enqueued), TimeToLive: time.Duration(m.life) * time.Millisecond}
}

// A reader reads what waits in a stretch of the work queue. partitioned says that numbers there are not in order of time.
type reader func(ctx context.Context, s stretch, see func(*link.Message)) (partitioned bool, err error)

// waitingIn calls see with the messages that wait on the work queue and were enqueued in the window. Of those that were seen
// before it calls noted instead.
func (e *entity) waitingIn(ctx context.Context, w *window, see func(*link.Message), noted func(shelved)) error {
	read := func(ctx context.Context, s stretch, see func(*link.Message)) (bool, error) {
		err := e.work.between(ctx, s.first(), s.last(), see)
		return e.work.cursor, err
	}
	if e.work.cursor {
		e.shelf = shelf{}
	}
	return e.shelf.waiting(ctx, w.stretch(), millis(e.w.clock.now().Add(-shelfAge)), read, see, noted)
}

// waiting is waitingIn for a stretch. What was enqueued before final is all there; it is read once.
func (s *shelf) waiting(ctx context.Context, in stretch, final int64, read reader, see func(*link.Message), noted func(shelved)) error {
	unknown := s.missing(in)
	for _, m := range s.messages {
		if in.holds(m.enqueued) && s.knows(m.enqueued) {
			noted(m)
		}
	}
	long := in.length() >= shelfFrom
	for _, u := range unknown {
		var seen []shelved
		partitioned, err := read(ctx, u, func(m *link.Message) {
			at := m.EnqueuedTime.UnixMilli()
			if !u.holds(at) {
				return
			}
			see(m)
			if long && at < final && len(seen) <= maxShelved {
				seen = append(seen, shelved{m.SequenceNumber, at, m.TimeToLive.Milliseconds()})
			}
		})
		if err != nil {
			return err
		}
		if long && !partitioned {
			s.add(stretch{u.from, min(u.until, final)}, seen)
		}
	}
	return nil
}

// knows reports whether everything that was enqueued in that millisecond is on the shelf.
func (s *shelf) knows(at int64) bool {
	return slices.ContainsFunc(s.kept, func(k stretch) bool { return k.holds(at) })
}

// missing are the parts of a stretch that the shelf knows nothing of.
func (s *shelf) missing(in stretch) (parts []stretch) {
	for _, k := range s.kept {
		if before := (stretch{in.from, min(in.until, k.from)}); !before.empty() {
			parts = append(parts, before)
		}
		in.from = max(in.from, k.until)
	}
	if !in.empty() {
		parts = append(parts, in)
	}
	return parts
}

// add puts on the shelf what was read of a stretch that is unknown so far, from its beginning on as far as there is room.
func (s *shelf) add(of stretch, seen []shelved) {
	if room := maxShelved - len(s.messages); len(seen) > room {
		// Numbers rise with time, but stamps of several nodes need not.
		slices.SortFunc(seen, func(a, b shelved) int { return int(a.enqueued - b.enqueued) })
		of.until = min(of.until, seen[room].enqueued) // of those that are left out, with all others of that millisecond
	}
	if of.empty() {
		return
	}
	for _, m := range seen {
		if of.holds(m.enqueued) {
			s.messages = append(s.messages, m)
		}
	}
	i, _ := slices.BinarySearchFunc(s.kept, of.from, func(k stretch, from int64) int { return int(k.from - from) })
	s.kept = slices.Insert(s.kept, i, of)
	joined := s.kept[:1]
	for _, k := range s.kept[1:] {
		if last := &joined[len(joined)-1]; last.until == k.from {
			last.until = k.until
		} else {
			joined = append(joined, k)
		}
	}
	if s.kept = joined; len(s.kept) > maxStretches {
		s.forget(s.kept[1].from)
	}
}

// forget drops what was enqueued before an instant.
func (s *shelf) forget(before int64) {
	s.kept = slices.DeleteFunc(s.kept, func(k stretch) bool { return k.until <= before })
	if len(s.kept) > 0 {
		s.kept[0].from = max(s.kept[0].from, before)
	}
	s.messages = slices.DeleteFunc(s.messages, func(m shelved) bool { return m.enqueued < before })
}

// clear forgets the messages whose slots have been looked for, and where there are many what no slot comes for any more, most likely:
// what was enqueued somewhat before the first of the windows.
func (s *shelf) clear(windows []window, settings Settings) {
	if len(s.messages) > maxShelved/2 {
		s.forget(windows[0].stretch().from - shelfGap.Milliseconds())
	}
	s.messages = slices.DeleteFunc(s.messages, func(m shelved) bool {
		return slices.ContainsFunc(windows, func(w window) bool {
			if !w.stretch().holds(m.enqueued) {
				return false
			}
			slot, _ := w.slotFor(m.message(), settings)
			return slot != nil
		})
	})
}
