// SPDX-License-Identifier: Apache-2.0

package search

import (
	"context"
	"slices"
	"sort"
	"time"

	"overdue/internal/servicebus/duration"
	"overdue/internal/servicebus/link"
)

// Slots for spans of times to live become due ten times a second. The messages of each are in a
// range of the work queue as long as the span, and these ranges overlap. No new message joins such
// a range. So it is read once, and cached until the slots of its messages are due.

const (
	// cacheFrom is the least length of a cached range. A shorter one is read for a single slot.
	cacheFrom = time.Second
	// cacheGap is how long before the first window a full cache drops messages.
	cacheGap = 10 * time.Second
	// maxCachedMessages bounds the cached messages, to about 10 MiB, and ten times that where they
	// are kept whole. Messages beyond that are read each time.
	maxCachedMessages = 1 << 18
	// maxCachedRanges bounds the separate ranges. The oldest is dropped.
	maxCachedRanges = 256
	// joinedAfter is how long ago neighbouring ranges must have been read to become one.
	joinedAfter = 5 * time.Second
)

// A RangeCache keeps the messages that were read from some ranges of the work queue. It answers
// for these ranges only. A message in it may be gone since; a message that it lacks was gone
// when its range was read.
type RangeCache struct {
	known    []cachedRange  // in order; they do not overlap
	messages cachedMessages // that waited in these ranges, and whose slots are not due yet
	Whole    bool           // keep messages whole, and those of short ranges too
	Ahead    bool           // read half of a range more than is needed: the next one reaches further
}

// cachedRange is a range that was read.
type cachedRange struct {
	TimeRange
	read time.Time // by our clock: by then
}

// A RangeReader reads the messages in a range of the work queue. partitioned: sequence numbers
// are not in the order of time.
type RangeReader func(ctx context.Context, s TimeRange, see func(*link.Message)) (partitioned bool, err error)

// Reads reports whether a long part of a range was not read yet.
func (s *RangeCache) Reads(in TimeRange) bool {
	return slices.ContainsFunc(s.missing(in), func(u TimeRange) bool { return u.Length() >= cacheFrom })
}

// Waiting calls see with the messages that wait in a range. For those messages from the cache that
// may become due in that time it calls noted instead. Ranges before final are read once.
func (s *RangeCache) Waiting(ctx context.Context, in TimeRange, final int64, read RangeReader, see func(*link.Message), due Due, noted func(*CachedMessage)) error {
	unknown := s.missing(in)
	s.messages.each(&due, func(m *CachedMessage) {
		if in.Holds(m.Enqueued) && s.contains(m.Enqueued) {
			noted(m)
		}
	})
	long := in.Length() >= cacheFrom || s.Whole
	if n := len(unknown); n > 0 && long && s.Ahead && unknown[n-1].Until == in.Until {
		ahead := s.missing(TimeRange{in.Until, min(in.Until+in.Length().Milliseconds()/2, final)})
		if len(ahead) > 0 && ahead[0].From == in.Until {
			unknown[n-1].Until = ahead[0].Until
		}
	}
	now := time.Now()
	for _, u := range unknown {
		var seen []CachedMessage
		found := map[Identity]bool{}
		partitioned, err := read(ctx, u, func(m *link.Message) {
			at := m.EnqueuedTime.UnixMilli()
			if !u.Holds(at) {
				return
			}
			if in.Holds(at) {
				see(m)
			}
			found[IdentityOf(m)] = true
			if long && at < final && len(seen) <= maxCachedMessages {
				c := CachedMessage{IdentityOf(m), m.TimeToLive.Milliseconds(), now, nil}
				if s.Whole {
					c.Whole = m
				}
				seen = append(seen, c)
			}
		})
		if err != nil {
			return err
		}
		s.messages.drop(s.messages.all(), func(m *CachedMessage) bool {
			// What is gone before the end of its time to live was received.
			return found[m.Identity] || u.Holds(m.Enqueued) && m.Enqueued+m.life > final+SettledAge.Milliseconds()
		})
		s.messages.each(&due, func(m *CachedMessage) {
			if u.Holds(m.Enqueued) && in.Holds(m.Enqueued) {
				noted(m) // from before the refresh
			}
		})
		if long && !partitioned {
			s.add(cachedRange{TimeRange{From: u.From, Until: min(u.Until, final)}, time.Now()}, seen)
		}
	}
	return nil
}

// Refresh has all ranges read again. What is not found then, and may have expired, stays in the
// cache as it was.
func (s *RangeCache) Refresh() { s.known = nil }

// contains reports whether the cache has the messages of that millisecond.
func (s *RangeCache) contains(at int64) bool {
	i := sort.Search(len(s.known), func(i int) bool { return s.known[i].Until > at })
	return i < len(s.known) && s.known[i].Holds(at)
}

// missing returns the parts of a range that the cache does not cover.
func (s *RangeCache) missing(in TimeRange) (parts []TimeRange) {
	for _, k := range s.known {
		if before := (TimeRange{From: in.From, Until: min(in.Until, k.From)}); !before.Empty() {
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
func (s *RangeCache) add(of cachedRange, seen []CachedMessage) {
	if room := maxCachedMessages - s.messages.n; len(seen) > room {
		// Sequence numbers rise with time, but stamps of several nodes may not.
		slices.SortFunc(seen, func(a, b CachedMessage) int { return int(a.Enqueued - b.Enqueued) })
		of.Until = min(of.Until, seen[room].Enqueued) // the range ends before the first omitted message's millisecond
	}
	if of.Empty() {
		return
	}
	for _, m := range seen {
		if of.Holds(m.Enqueued) {
			s.messages.add(m)
		}
	}
	i, _ := slices.BinarySearchFunc(s.known, of.From, func(k cachedRange, from int64) int { return int(k.From - from) })
	s.known = slices.Insert(s.known, i, of)
	joined := s.known[:1]
	for _, k := range s.known[1:] {
		if last := &joined[len(joined)-1]; last.Until == k.From && of.read.Sub(duration.Later(last.read, k.read)) > joinedAfter {
			last.Until, last.read = k.Until, duration.Later(last.read, k.read)
		} else {
			joined = append(joined, k)
		}
	}
	if s.known = joined; len(s.known) > maxCachedRanges {
		s.forget(s.known[1].From)
	}
}

// forget drops messages that were enqueued before an instant.
func (s *RangeCache) forget(before int64) {
	s.known = slices.DeleteFunc(s.known, func(k cachedRange) bool { return k.Until <= before })
	if len(s.known) > 0 {
		s.known[0].From = max(s.known[0].From, before)
	}
	s.messages.drop(s.messages.all(), func(m *CachedMessage) bool { return m.Enqueued < before })
}

// Clear drops the messages of slots that have been handled, which may have become due in that time.
// If the cache is more than half full, it also drops those that were enqueued cacheGap before first:
// probably no slot needs them.
func (s *RangeCache) Clear(first int64, due Due, handled func(*CachedMessage) bool) {
	s.messages.drop(s.messages.in(&due), func(m *CachedMessage) bool { return due.mayHave(m) && handled(m) })
	before := first - cacheGap.Milliseconds()
	if s.messages.n > maxCachedMessages/2 && len(s.known) > 0 && s.known[0].From < before {
		s.forget(before)
	}
}

// Each calls see with the cached messages that may become due in that time.
func (s *RangeCache) Each(due Due, see func(*CachedMessage)) { s.messages.each(&due, see) }

// Latest returns the latest range that the cache has without a gap.
func (s *RangeCache) Latest() (latest TimeRange) {
	for i := len(s.known) - 1; i >= 0; i-- {
		if k := s.known[i]; latest.Empty() || k.Until == latest.From {
			latest = TimeRange{k.From, max(k.Until, latest.Until)}
		}
	}
	return latest
}

// ReadBefore reports whether the cache has messages that were read before an instant of our clock,
// or that it does not keep whole although it should.
func (s *RangeCache) ReadBefore(t time.Time) bool {
	return s.messages.some(func(m *CachedMessage) bool { return m.Read.Before(t) || s.Whole && m.Whole == nil })
}

// CoveredBy reports whether the cache has all that waited in a range at an instant of our clock.
func (s *RangeCache) CoveredBy(t time.Time, in TimeRange) bool {
	for _, k := range s.known {
		if k.From <= in.From && !k.read.After(t) {
			in.From = max(in.From, k.Until)
		}
	}
	return in.Empty()
}

// Empty reports whether nothing is cached.
func (s *RangeCache) Empty() bool { return len(s.known) == 0 }
