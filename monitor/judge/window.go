// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"time"

	"overdue/internal/servicebus/duration"
	"overdue/monitor/search"
	"overdue/scheduler"
)

// Window is a span of enqueued-times, both ends included.
type Window struct{ From, Until time.Time }

// WindowsOf returns the windows in which the messages of a slot are found.
func WindowsOf(slot *scheduler.Companion) (windows []Window) {
	add := func(shortest, longest time.Duration) {
		from := slot.SlotStart().Add(-longest).Truncate(search.StampPrecision) // as stamps are cut
		windows = append(windows, Window{from, slot.SlotEnd.Add(-shortest)})
	}
	for _, life := range slot.Lives {
		add(life, life)
	}
	for _, span := range slot.Spans {
		add(span.Shortest, span.Longest)
	}
	return windows
}

// SlotOf returns the slot of a message with that stamp and stated time to live, and the life that
// puts it there. The slots are by their ends. It returns nil if the message belongs to none. A slot
// stands for the times to live that were stated when it was written, so today's default is only one
// that the message may have. Stamps are cut to whole milliseconds, so the message may belong to the
// previous slot, which has its own check.
func SlotOf(slots []*scheduler.Companion, enqueued time.Time, ttl time.Duration, s Settings) (slot *scheduler.Companion, life time.Duration) {
	for _, life := range [...]time.Duration{ttl, duration.Shorter(ttl, s.DefaultMessageTimeToLive)} {
		end := enqueued.Add(life)
		i, _ := slices.BinarySearchFunc(slots, end, func(c *scheduler.Companion, end time.Time) int { return c.SlotEnd.Compare(end) })
		for ; life > 0 && i < len(slots) && end.After(slots[i].SlotStart()); i++ {
			if slots[i].StandsFor(life) {
				return slots[i], life
			}
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
