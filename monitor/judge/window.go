// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"time"

	"overdue/internal/servicebus/duration"
	"overdue/internal/servicebus/link"
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
	for _, c := range slots {
		for _, life := range c.Lives {
			all = append(all, Window{c.SlotStart().Add(-life), c.SlotEnd.Add(-life), []*scheduler.Companion{c}})
		}
		for _, span := range c.Spans {
			all = append(all, Window{c.SlotStart().Add(-span.Longest), c.SlotEnd.Add(-span.Shortest), []*scheduler.Companion{c}})
		}
	}
	slices.SortFunc(all, func(a, b Window) int { return a.From.Compare(b.From) })
	merged := all[:1]
	for _, w := range all[1:] {
		last := &merged[len(merged)-1]
		if w.From.After(last.Until.Add(search.StampPrecision)) {
			merged = append(merged, w)
			continue
		}
		last.Until = duration.Later(last.Until, w.Until)
		last.Slots = append(last.Slots, w.Slots...)
	}
	for _, w := range merged {
		slices.SortFunc(w.Slots, func(a, b *scheduler.Companion) int { return a.SlotEnd.Compare(b.SlotEnd) })
	}
	return merged
}

// RangesOf returns the time ranges of windows.
func RangesOf(windows []Window) (ranges []search.TimeRange) {
	for i := range windows {
		ranges = append(ranges, windows[i].TimeRange())
	}
	return ranges
}

// TimeRange is the stamps that lie in the window, and those that may have been cut from an
// instant in it.
func (w *Window) TimeRange() search.TimeRange {
	return search.TimeRange{From: search.Millis(w.From), Until: search.Millis(w.Until) + 1}
}

// Begins is when the first slot begins. What was gone before was received in time.
func (w *Window) Begins() time.Time { return w.Slots[0].SlotStart() }

// Due distinguishes the cached messages that may belong to the slots from most others.
func (w *Window) Due(s Settings) search.Due {
	return search.Due{
		TimeRange: search.TimeRange{From: search.Millis(w.Begins()), Until: search.Millis(w.Slots[len(w.Slots)-1].SlotEnd) + 1},
		Most:      s.DefaultMessageTimeToLive,
	}
}

// SlotOf returns the slot of m, and the time to live that puts it there; nil if m belongs to none
// of w. A slot stands for the times to live that were stated when it was written, so today's
// default is only one of those that m may have had.
func (w *Window) SlotOf(m *link.Message, s Settings) (*scheduler.Companion, time.Duration) {
	lives := [...]time.Duration{m.TimeToLive, duration.Shorter(m.TimeToLive, s.DefaultMessageTimeToLive)}
	for _, life := range lives {
		if life == 0 {
			continue
		}
		if slot := w.slotEndingAt(m.EnqueuedTime.Add(life), life); slot != nil {
			return slot, life
		}
	}
	if m.TimeToLive > 0 || !m.EnqueuedTime.Before(s.DefaultSince) {
		return nil, 0
	}
	// It has the default of its time. Only the slot knows it.
	for _, slot := range w.Slots {
		for _, life := range slot.Defaults {
			if end := m.EnqueuedTime.Add(life); end.After(slot.SlotStart()) && !end.After(slot.SlotEnd) {
				return slot, life
			}
		}
	}
	return nil, 0
}

// slotEndingAt returns the slot that contains t and stands for that time to live, or nil.
func (w *Window) slotEndingAt(t time.Time, life time.Duration) *scheduler.Companion {
	// Stamps are cut to whole milliseconds, so this message may belong to the previous slot, which
	// has its own check.
	i, _ := slices.BinarySearchFunc(w.Slots, t, func(c *scheduler.Companion, t time.Time) int { return c.SlotEnd.Compare(t) })
	for _, slot := range w.Slots[i:] {
		switch {
		case !t.After(slot.SlotStart()):
			return nil
		case slot.StandsFor(life):
			return slot
		}
	}
	return nil
}
