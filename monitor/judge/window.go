// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"time"

	"overdue/internal/servicebus/duration"
	"overdue/monitor/search"
	"overdue/scheduler"
)

// Window is a span of enqueued-times, both ends included, in which the messages of slots are found.
type Window struct {
	From, Until time.Time
	Slots       []*scheduler.Companion // whose messages these are, by when they end
}

// WindowsOf returns the windows of slots. Neighbours share one.
func WindowsOf(slots ...*scheduler.Companion) []Window {
	var all []Window
	add := func(c *scheduler.Companion, shortest, longest time.Duration) {
		all = append(all, Window{
			From:  c.SlotStart().Add(-longest).Truncate(search.StampPrecision), // as stamps are cut
			Until: c.SlotEnd.Add(-shortest),
			Slots: []*scheduler.Companion{c},
		})
	}
	for _, c := range slots {
		for _, life := range c.Lives {
			add(c, life, life)
		}
		for _, span := range c.Spans {
			add(c, span.Shortest, span.Longest)
		}
	}
	slices.SortFunc(all, func(a, b Window) int { return a.From.Compare(b.From) })
	var merged []Window
	for _, w := range all {
		last := len(merged) - 1
		if last < 0 || w.From.After(merged[last].Until.Add(search.StampPrecision)) {
			merged = append(merged, w)
			continue
		}
		merged[last].Until = duration.Later(merged[last].Until, w.Until)
		merged[last].Slots = append(merged[last].Slots, w.Slots...)
	}
	for _, w := range merged {
		slices.SortFunc(w.Slots, bySlotEnd)
	}
	return merged
}

func bySlotEnd(a, b *scheduler.Companion) int { return a.SlotEnd.Compare(b.SlotEnd) }

// SlotOf returns the slot of a message with that stamp and stated time to live, of slots by when
// they end, and the life that puts it there; nil if it belongs to none. A slot stands for the times
// to live that were stated when it was written, so today's default is only one that the message may
// have.
func SlotOf(slots []*scheduler.Companion, enqueued time.Time, ttl time.Duration, s Settings) (slot *scheduler.Companion, life time.Duration) {
	for _, life := range [...]time.Duration{ttl, duration.Shorter(ttl, s.DefaultMessageTimeToLive)} {
		if slot := slotWith(slots, enqueued, life); slot != nil {
			return slot, life
		}
	}
	if ttl > 0 || !enqueued.Before(s.DefaultSince) {
		return nil, 0
	}
	for _, slot := range slots { // it has the default of its time, which only the slot knows
		for _, life := range slot.Defaults {
			if end := enqueued.Add(life); end.After(slot.SlotStart()) && !end.After(slot.SlotEnd) {
				return slot, life
			}
		}
	}
	return nil, 0
}

// slotWith returns the slot in which that life ends and that stands for it, or nil. Stamps are cut
// to whole milliseconds, so the message may belong to the previous slot, which has its own check.
func slotWith(slots []*scheduler.Companion, enqueued time.Time, life time.Duration) *scheduler.Companion {
	end := enqueued.Add(life)
	i, _ := slices.BinarySearchFunc(slots, &scheduler.Companion{SlotEnd: end}, bySlotEnd)
	for _, slot := range slots[i:] {
		switch {
		case life == 0 || !end.After(slot.SlotStart()):
			return nil
		case slot.StandsFor(life):
			return slot
		}
	}
	return nil
}
