// SPDX-License-Identifier: Apache-2.0

package search

import (
	"cmp"
	"context"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
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
	// maxCachedMessages bounds the cached messages, to about 10 MiB, and maxCachedWhole those that
	// are kept whole, to about 50 MiB. Messages beyond that are read each time.
	maxCachedMessages = 1 << 18
	maxCachedWhole    = 1 << 17
	// longRead is how many messages one read may have for which nudges wait: an eighth of a second.
	longRead = 1 << 15
	// maxCachedRanges bounds the separate ranges. The oldest is dropped.
	maxCachedRanges = 256
	// joinedAfter is how long ago neighbouring ranges must have been read to become one.
	joinedAfter = 5 * time.Second
)

// A RangeCache keeps the messages that were read from some ranges of the work queue. It answers
// for these ranges only. A message in it may be gone since; a message that it lacks was gone
// when its range was read. The methods are safe for concurrent use. What they call must not use the
// cache, except a RangeReader.
type RangeCache struct {
	mu        sync.Mutex
	known     []cachedRange  // in order; they do not overlap
	messages  cachedMessages // that waited in these ranges, and whose slots are not due yet
	whole     bool           // keep messages whole, and those of short ranges too
	published atomic.Pointer[coverage]
	full      bool // there was no room for all of a read; until it is half full again
	long      int  // reads under way that are long
	stale     bool // some messages are of ranges that have to be read again
}

// SetWhole sets whether messages are kept whole, and those of short ranges too.
func (s *RangeCache) SetWhole(whole bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.whole = whole
}

// most returns how many messages the cache keeps. The caller holds the mutex.
func (s *RangeCache) most() int {
	if s.whole {
		return maxCachedWhole
	}
	return maxCachedMessages
}

// Reset forgets everything.
func (s *RangeCache) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known, s.messages, s.stale, s.full = nil, cachedMessages{}, false, false
	s.publish(1)
}

// cachedRange is a range that was read.
type cachedRange struct {
	TimeRange
	read time.Time // by our clock: by then
}

// A RangeReader reads the messages in a range of the work queue, in the order of their numbers. The
// cache keeps none after more was false. partitioned: these are not in the order of time.
type RangeReader func(ctx context.Context, s TimeRange, see func(*link.Message) (more bool)) (partitioned bool, err error)

// Reads reports whether a long part of a range was not read yet.
func (s *RangeCache) Reads(in TimeRange) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.missing(in), func(u TimeRange) bool { return u.Length() >= cacheFrom })
}

// Waiting calls see with the messages that wait in a range. For those messages from the cache that
// may become due in that time it calls noted instead. Ranges before final are read once.
func (s *RangeCache) Waiting(ctx context.Context, in TimeRange, final int64, read RangeReader, see func(*link.Message), due Due, noted func(*CachedMessage)) error {
	s.mu.Lock()
	unknown, whole, most := s.missing(in), s.whole, s.most()
	s.messages.each(&due, func(m *CachedMessage) {
		if in.Holds(m.Enqueued) && s.contains(m.Enqueued) {
			noted(m)
		}
	})
	s.mu.Unlock()
	keep := whole || in.Length() >= cacheFrom
	for _, u := range unknown {
		now, n := time.Now(), 0
		var seen []CachedMessage
		found := map[Identity]bool{}
		partitioned, err := read(ctx, u, func(m *link.Message) (more bool) {
			if !u.Holds(m.EnqueuedTime.UnixMilli()) {
				return true
			}
			see(m)
			found[IdentityOf(m)] = true
			if n++; n == longRead {
				s.noteLong(1)
			}
			if keep && len(seen) <= most {
				if len(seen) == cap(seen) {
					seen = slices.Grow(seen, max(PageSize, len(seen))) // they may be many
				}
				seen = append(seen, cached(m, now, whole))
			}
			return len(seen) <= most
		})
		if n >= longRead {
			s.noteLong(-1)
		}
		if err != nil {
			return err
		}
		s.mu.Lock()
		kept := u
		if len(seen) > most { // and there were more, in the order of their numbers
			latest := slices.MaxFunc(seen, func(a, b CachedMessage) int { return cmp.Compare(a.Enqueued, b.Enqueued) })
			kept.Until, s.full = min(u.Until, latest.Enqueued), true
		}
		s.take(kept, seen, found, final, keep && !partitioned)
		s.messages.each(&due, func(m *CachedMessage) {
			if u.Holds(m.Enqueued) && !found[m.Identity] {
				noted(m) // from before the refresh
			}
		})
		s.mu.Unlock()
	}
	return nil
}

// noteLong has nobody wait for what is being read, until the read has ended.
func (s *RangeCache) noteLong(more int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.long += more
	s.publish(0)
}

// take takes what was read of a range, as far as nobody else has read it meanwhile, and keeps it if
// keep is set. The caller holds the mutex.
func (s *RangeCache) take(u TimeRange, seen []CachedMessage, found map[Identity]bool, final int64, keep bool) {
	for _, part := range s.missing(u) {
		if s.stale {
			s.stale = false
			s.messages.drop(s.messages.all(), func(m *CachedMessage) bool {
				// What is gone before the end of its time to live was received.
				over := part.Holds(m.Enqueued) && (found[m.Identity] || m.Enqueued+m.life > final+SettledAge.Milliseconds())
				s.stale = s.stale || !over && !s.contains(m.Enqueued)
				return over
			})
		}
		if keep {
			of := seen
			if part != u { // mostly it is, and there may be many
				of = nil
				for i := range seen {
					if part.Holds(seen[i].Enqueued) {
						of = append(of, seen[i])
					}
				}
			}
			s.add(cachedRange{TimeRange{From: part.From, Until: min(part.Until, final)}, time.Now()}, of)
		}
	}
}

// Refresh has all ranges read again. What is not found then, and may have expired, stays in the
// cache as it was.
func (s *RangeCache) Refresh() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known, s.stale = nil, s.messages.n > 0
	s.publish(1)
}

// contains reports whether the cache has the messages of that millisecond.
func (s *RangeCache) contains(at int64) bool {
	i := sort.Search(len(s.known), func(i int) bool { return s.known[i].Until > at })
	return i < len(s.known) && s.known[i].Holds(at)
}

// missing returns the parts of a range that the cache does not cover.
func (s *RangeCache) missing(in TimeRange) []TimeRange { return uncovered(in, s.known) }

// uncovered returns the parts of a range that lie in none of the known ones, which are in order.
func uncovered(in TimeRange, known []cachedRange) (parts []TimeRange) {
	for _, k := range known {
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

// coverage is what a cache has.
type coverage struct {
	known []cachedRange
	drops int  // how often ranges were dropped before
	full  bool // it has no room, or a long read is under way
}

// publish publishes the coverage. The caller holds the mutex.
func (s *RangeCache) publish(drops int) {
	if before := s.published.Load(); before != nil {
		drops += before.drops
	}
	s.published.Store(&coverage{slices.Clone(s.known), drops, s.full || s.long > 0})
}

// HasAll reports whether the cache has all these ranges, or all that it has room for; and how often
// ranges were dropped so far: what it has it still has as long as that is the same. It waits for no
// other method.
func (s *RangeCache) HasAll(ranges ...TimeRange) (all bool, drops int) {
	now := s.published.Load()
	if now == nil {
		now = &coverage{}
	}
	return now.full || !slices.ContainsFunc(ranges, func(in TimeRange) bool { return len(uncovered(in, now.known)) > 0 }), now.drops
}

// add caches what was read of a range, from its beginning as far as there is room.
func (s *RangeCache) add(of cachedRange, seen []CachedMessage) {
	if room := max(s.most()-s.messages.n, 0); len(seen) > room {
		// Sequence numbers rise with time, but stamps of several nodes may not.
		slices.SortFunc(seen, func(a, b CachedMessage) int { return int(a.Enqueued - b.Enqueued) })
		of.Until = min(of.Until, seen[room].Enqueued) // the range ends before the first omitted message's millisecond
		s.full = true
	}
	if of.Empty() {
		s.publish(0)
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
	s.publish(0)
}

// forget drops messages that were enqueued before an instant.
func (s *RangeCache) forget(before int64) {
	s.known = slices.DeleteFunc(s.known, func(k cachedRange) bool { return k.Until <= before })
	if len(s.known) > 0 {
		s.known[0].From = max(s.known[0].From, before)
	}
	s.messages.drop(s.messages.all(), func(m *CachedMessage) bool { return m.Enqueued < before })
	s.publish(1)
}

// Clear drops the messages of slots that have been handled, which may have become due in that time.
// If the cache is more than half full, it also drops those that were enqueued cacheGap before
// first: probably no slot needs them.
func (s *RangeCache) Clear(first int64, due Due, handled func(*CachedMessage) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.messages.drop(s.messages.in(&due), func(m *CachedMessage) bool { return due.mayHave(m) && handled(m) })
	before := first - cacheGap.Milliseconds()
	if s.messages.n > s.most()/2 && len(s.known) > 0 && s.known[0].From < before {
		s.forget(before)
	}
	if s.full && s.messages.n <= s.most()/2 {
		s.full = false
		s.publish(1) // it seemed to have everything
	}
}

// Named calls see with the messages that are cached whole, may become due in that time, and most
// probably have one of these message-ids.
func (s *RangeCache) Named(names map[string][]*Want, due Due, see func(*CachedMessage)) {
	hashes := make(map[uint64]bool, len(names))
	for name := range names {
		hashes[hashOf(name)] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.messages.each(&due, func(m *CachedMessage) {
		if m.Whole != nil && hashes[m.name] {
			see(m)
		}
	})
}

// Has reports whether the cache has m.
func (s *RangeCache) Has(m *link.Message) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := cached(m, time.Time{}, false)
	return slices.ContainsFunc(s.messages.groups[groupOf(&c)], func(o CachedMessage) bool { return o.Identity == c.Identity })
}

// ReadBefore reports whether the cache has messages that were read before an instant of our clock,
// or that it does not keep whole although it should.
func (s *RangeCache) ReadBefore(t time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.messages.some(func(m *CachedMessage) bool { return m.Read.Before(t) || s.whole && m.Whole == nil })
}

// CoveredBy reports whether the cache has all that waited in a range at an instant of our clock.
func (s *RangeCache) CoveredBy(t time.Time, in TimeRange) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.known {
		if k.From <= in.From && !k.read.After(t) {
			in.From = max(in.From, k.Until)
		}
	}
	return in.Empty()
}

// Empty reports whether nothing is cached.
func (s *RangeCache) Empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.known) == 0
}
