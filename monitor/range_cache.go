// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"slices"
	"time"

	"overdue/internal/servicebus/link"
	"overdue/monitor/search"
)

// Slots for spans of times to live become due ten times a second. The messages of each are in a
// range of the work queue as long as the span, and these ranges overlap. No new message joins such
// a range. So it is read once, and cached until the slots of its messages are due.

const (
	// cacheFrom is the least length of a cached range. A shorter one is read for a single slot.
	cacheFrom = time.Second
	// cacheGap is how long before the first window a full cache drops messages.
	cacheGap = 10 * time.Second
	// maxCachedMessages bounds the cached messages, to about 6 MiB. Messages beyond that are
	// read each time.
	maxCachedMessages = 1 << 18
	// maxCachedRanges bounds the separate ranges. The oldest is dropped.
	maxCachedRanges = 64
)

// A rangeCache keeps the messages that were read from some ranges of the work queue. It answers
// for these ranges only. A message in it may be gone since; a message that it lacks was gone
// when its range was read.
type rangeCache struct {
	known    []search.TimeRange // in order; they neither overlap nor touch
	messages []cachedMessage    // that waited in these ranges, and whose slots are not due yet
}

// cachedMessage is a message, with its stamp and its time to live in Unix milliseconds.
type cachedMessage struct{ number, enqueued, life int64 }

// message returns the fields that assign it to a slot.
func (m cachedMessage) message() *link.Message {
	return &link.Message{SequenceNumber: m.number, EnqueuedTime: time.UnixMilli(m.enqueued), TimeToLive: time.Duration(m.life) * time.Millisecond}
}

// A rangeReader reads the messages in a range of the work queue. partitioned: sequence numbers
// are not in the order of time.
type rangeReader func(ctx context.Context, s search.TimeRange, see func(*link.Message)) (partitioned bool, err error)

// waitingIn calls see with the messages on the work queue that were enqueued in the window. For
// messages from the cache it calls noted instead.
func (e *entity) waitingIn(ctx context.Context, w *window, see func(*link.Message), noted func(cachedMessage)) error {
	read := func(ctx context.Context, s search.TimeRange, see func(*link.Message)) (bool, error) {
		err := e.work.Between(ctx, s.First(), s.Last(), see)
		return e.work.Cursor, err
	}
	if e.work.Cursor {
		e.ranges = rangeCache{}
	}
	return e.ranges.waiting(ctx, w.timeRange(), search.Millis(e.w.clock.now().Add(-search.SettledAge)), read, see, noted)
}

// waiting is waitingIn for a range. Ranges before final are read once.
func (s *rangeCache) waiting(ctx context.Context, in search.TimeRange, final int64, read rangeReader, see func(*link.Message), noted func(cachedMessage)) error {
	unknown := s.missing(in)
	for _, m := range s.messages {
		if in.Holds(m.enqueued) && s.contains(m.enqueued) {
			noted(m)
		}
	}
	long := in.Length() >= cacheFrom
	for _, u := range unknown {
		var seen []cachedMessage
		partitioned, err := read(ctx, u, func(m *link.Message) {
			at := m.EnqueuedTime.UnixMilli()
			if !u.Holds(at) {
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
			s.add(search.TimeRange{From: u.From, Until: min(u.Until, final)}, seen)
		}
	}
	return nil
}

// contains reports whether the cache has the messages of that millisecond.
func (s *rangeCache) contains(at int64) bool {
	return slices.ContainsFunc(s.known, func(k search.TimeRange) bool { return k.Holds(at) })
}

// missing returns the parts of a range that the cache does not cover.
func (s *rangeCache) missing(in search.TimeRange) (parts []search.TimeRange) {
	for _, k := range s.known {
		if before := (search.TimeRange{From: in.From, Until: min(in.Until, k.From)}); !before.Empty() {
			parts = append(parts, before)
		}
		in.From = max(in.From, k.Until)
	}
	if !in.Empty() {
		parts = append(parts, in)
	}
	return parts
}

// add caches what was read of a range, from its beginning as far as there is room.
func (s *rangeCache) add(of search.TimeRange, seen []cachedMessage) {
	if room := maxCachedMessages - len(s.messages); len(seen) > room {
		// Sequence numbers rise with time, but stamps of several nodes may not.
		slices.SortFunc(seen, func(a, b cachedMessage) int { return int(a.enqueued - b.enqueued) })
		of.Until = min(of.Until, seen[room].enqueued) // the range ends before the first omitted message's millisecond
	}
	if of.Empty() {
		return
	}
	for _, m := range seen {
		if of.Holds(m.enqueued) {
			s.messages = append(s.messages, m)
		}
	}
	i, _ := slices.BinarySearchFunc(s.known, of.From, func(k search.TimeRange, from int64) int { return int(k.From - from) })
	s.known = slices.Insert(s.known, i, of)
	joined := s.known[:1]
	for _, k := range s.known[1:] {
		if last := &joined[len(joined)-1]; last.Until == k.From {
			last.Until = k.Until
		} else {
			joined = append(joined, k)
		}
	}
	if s.known = joined; len(s.known) > maxCachedRanges {
		s.forget(s.known[1].From)
	}
}

// forget drops messages that were enqueued before an instant.
func (s *rangeCache) forget(before int64) {
	s.known = slices.DeleteFunc(s.known, func(k search.TimeRange) bool { return k.Until <= before })
	if len(s.known) > 0 {
		s.known[0].From = max(s.known[0].From, before)
	}
	s.messages = slices.DeleteFunc(s.messages, func(m cachedMessage) bool { return m.enqueued < before })
}

// clear drops the messages of slots that have been handled. If the cache is more than half
// full, it also drops messages so old that probably no slot needs them.
func (s *rangeCache) clear(windows []window, settings Settings) {
	if len(s.messages) > maxCachedMessages/2 {
		s.forget(windows[0].timeRange().From - cacheGap.Milliseconds())
	}
	s.messages = slices.DeleteFunc(s.messages, func(m cachedMessage) bool {
		return slices.ContainsFunc(windows, func(w window) bool {
			if !w.timeRange().Holds(m.enqueued) {
				return false
			}
			slot, _ := w.slotFor(m.message(), settings)
			return slot != nil
		})
	})
}
