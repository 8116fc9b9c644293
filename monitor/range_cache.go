// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"slices"
	"time"

	"overdue/internal/servicebus/link"
)

// Slots for spans of times to live become due fifty times a second, and the messages of each are found in the same time range of the
// work queue, as long as the span is wide. What stands there was enqueued long ago, so nothing comes to it any more: it is read
// once, and remembered until the slots become due that its messages belong to.

const (
	// cacheFrom is how long a window is from which on it is remembered: what is shorter is read for one slot alone.
	cacheFrom = time.Second
	// settledAge is how long ago the last message was enqueued that no other can come before.
	settledAge = 2 * time.Second
	// cacheGap is how long before the first of the windows it is forgotten what is in a range cache that fills up.
	cacheGap = 10 * time.Second
	// maxCachedMessages bounds the messages that are remembered, to some 6 MiB. What is beyond is read each time, until slots have become due.
	maxCachedMessages = 1 << 18
	// maxCachedRanges bounds the time ranges between which nothing is known. Of more the oldest goes.
	maxCachedRanges = 64
)

// A rangeCache is what was seen of some time ranges of the work queue. It answers for those alone: of what lies in none of them it knows
// nothing, and the queue has to be read. What it has may have gone since; what it lacks had gone when the time range was read.
type rangeCache struct {
	known    []timeRange     // in order; they neither overlap nor touch
	messages []cachedMessage // that waited in these, and whose slots have not become due since
}

// cachedMessage is one message, with its stamp and its own time to live in Unix milliseconds.
type cachedMessage struct{ number, enqueued, life int64 }

// message is as much of it as slots are notified by.
func (m cachedMessage) message() *link.Message {
	return &link.Message{SequenceNumber: m.number, EnqueuedTime: time.UnixMilli(m.enqueued), TimeToLive: time.Duration(m.life) * time.Millisecond}
}

// A rangeReader reads what waits in a time range of the work queue. partitioned says that numbers there are not in order of time.
type rangeReader func(ctx context.Context, s timeRange, see func(*link.Message)) (partitioned bool, err error)

// waitingIn calls see with the messages that wait on the work queue and were enqueued in the window. Of those that were seen
// before it calls noted instead.
func (e *entity) waitingIn(ctx context.Context, w *window, see func(*link.Message), noted func(cachedMessage)) error {
	read := func(ctx context.Context, s timeRange, see func(*link.Message)) (bool, error) {
		err := e.work.between(ctx, s.first(), s.last(), see)
		return e.work.cursor, err
	}
	if e.work.cursor {
		e.ranges = rangeCache{}
	}
	return e.ranges.waiting(ctx, w.timeRange(), millis(e.w.clock.now().Add(-settledAge)), read, see, noted)
}

// waiting is waitingIn for a time range. What was enqueued before final is all there; it is read once.
func (s *rangeCache) waiting(ctx context.Context, in timeRange, final int64, read rangeReader, see func(*link.Message), noted func(cachedMessage)) error {
	unknown := s.missing(in)
	for _, m := range s.messages {
		if in.holds(m.enqueued) && s.covers(m.enqueued) {
			noted(m)
		}
	}
	long := in.length() >= cacheFrom
	for _, u := range unknown {
		var seen []cachedMessage
		partitioned, err := read(ctx, u, func(m *link.Message) {
			at := m.EnqueuedTime.UnixMilli()
			if !u.holds(at) {
				return
			}
			see(m)
			if long && at < final && len(seen) <= maxCachedMessages {
				seen = append(seen, cachedMessage{m.SequenceNumber, at, m.TimeToLive.Milliseconds()})
			}
		})
		if err != nil {
			return err
		}
		if long && !partitioned {
			s.add(timeRange{u.from, min(u.until, final)}, seen)
		}
	}
	return nil
}

// covers reports whether everything that was enqueued in that millisecond is on the range cache.
func (s *rangeCache) covers(at int64) bool {
	return slices.ContainsFunc(s.known, func(k timeRange) bool { return k.holds(at) })
}

// missing are the parts of a time range that the range cache knows nothing of.
func (s *rangeCache) missing(in timeRange) (parts []timeRange) {
	for _, k := range s.known {
		if before := (timeRange{in.from, min(in.until, k.from)}); !before.empty() {
			parts = append(parts, before)
		}
		in.from = max(in.from, k.until)
	}
	if !in.empty() {
		parts = append(parts, in)
	}
	return parts
}

// add puts on the range cache what was read of a time range that is unknown so far, from its beginning on as far as there is room.
func (s *rangeCache) add(of timeRange, seen []cachedMessage) {
	if room := maxCachedMessages - len(s.messages); len(seen) > room {
		// Numbers rise with time, but stamps of several nodes need not.
		slices.SortFunc(seen, func(a, b cachedMessage) int { return int(a.enqueued - b.enqueued) })
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
	i, _ := slices.BinarySearchFunc(s.known, of.from, func(k timeRange, from int64) int { return int(k.from - from) })
	s.known = slices.Insert(s.known, i, of)
	joined := s.known[:1]
	for _, k := range s.known[1:] {
		if last := &joined[len(joined)-1]; last.until == k.from {
			last.until = k.until
		} else {
			joined = append(joined, k)
		}
	}
	if s.known = joined; len(s.known) > maxCachedRanges {
		s.forget(s.known[1].from)
	}
}

// forget drops what was enqueued before an instant.
func (s *rangeCache) forget(before int64) {
	s.known = slices.DeleteFunc(s.known, func(k timeRange) bool { return k.until <= before })
	if len(s.known) > 0 {
		s.known[0].from = max(s.known[0].from, before)
	}
	s.messages = slices.DeleteFunc(s.messages, func(m cachedMessage) bool { return m.enqueued < before })
}

// clear forgets the messages whose slots have been searched for, and where there are many what no slot comes for any more, most likely:
// what was enqueued somewhat before the first of the windows.
func (s *rangeCache) clear(windows []window, settings Settings) {
	if len(s.messages) > maxCachedMessages/2 {
		s.forget(windows[0].timeRange().from - cacheGap.Milliseconds())
	}
	s.messages = slices.DeleteFunc(s.messages, func(m cachedMessage) bool {
		return slices.ContainsFunc(windows, func(w window) bool {
			if !w.timeRange().holds(m.enqueued) {
				return false
			}
			slot, _ := w.slotFor(m.message(), settings)
			return slot != nil
		})
	})
}
