// SPDX-License-Identifier: Apache-2.0

package nudge

import (
	"slices"
	"sync"
	"time"

	"overdue/monitor/judge"
	"overdue/monitor/search"
	"overdue/scheduler"
)

// readMost is how long after its end a slot whose messages were not read holds up nudges at most.
const readMost = 5 * time.Second

// Slots are the slots in hand that were not searched yet. A nudge expires messages of all those that
// have begun. Where dead letters may be taken away, it must not do so before these messages were
// read. The methods are safe for concurrent use.
type Slots struct {
	mu  sync.Mutex
	all []slotInHand
}

// slotInHand is a slot, and what was found of its messages.
type slotInHand struct {
	*scheduler.Companion
	ranges []search.TimeRange // of its messages, as far as a cache can have them
	read   bool               // the cache had them
	drops  int                // of the cache, then
}

// Add takes slots in hand at an instant of the clock of the broker.
func (s *Slots) Add(now time.Time, slots ...*scheduler.Companion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(c slotInHand) bool { return now.Sub(c.SlotEnd) > readMost })
	for _, c := range slots {
		ranges, settled := judge.RangesOf(judge.WindowsOf(c)), search.Millis(c.SlotStart().Add(-search.SettledAge))
		for i := range ranges {
			ranges[i].Until = min(ranges[i].Until, settled)
		}
		s.all = append(s.all, slotInHand{Companion: c, ranges: ranges})
	}
}

// Remove removes slots.
func (s *Slots) Remove(slots ...*scheduler.Companion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(c slotInHand) bool { return slices.Contains(slots, c.Companion) })
}

// Unread returns the ranges of a slot of which the cache lacks messages that a nudge may expire
// until an instant of the clock of the broker; nil: it has all. It does not count those that were
// enqueued only a moment before their slot, which the cache cannot have.
func (s *Slots) Unread(until time.Time, cache *search.RangeCache) []search.TimeRange {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, drops := cache.HasAll()
	for i := range s.all {
		c := &s.all[i]
		if c.read && c.drops == drops || !c.SlotStart().Before(until) || until.Sub(c.SlotEnd) > readMost {
			continue
		}
		if c.read, c.drops = cache.HasAll(c.ranges...); !c.read {
			return c.ranges
		}
	}
	return nil
}
