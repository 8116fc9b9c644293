// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/servicebus/link"
	"overdue/monitor/judge"
	"overdue/monitor/search"
	"overdue/scheduler"
)

// Where dead letters may be taken away, a nudge waits for a slot whose messages nobody has read.
// Where they stay, it does not.
func TestNoNudgeIsMadeBeforeWhatItExpiresWasRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _, _ := absent(t)
		e.prefetcher.Go = func(func()) {} // reads nothing
		now := time.Now()
		slot := &scheduler.Companion{SlotEnd: now.Add(time.Second), SlotLength: 2 * time.Second, Lives: []time.Duration{time.Minute}}
		e.slots.Add(now, slot)
		if e.mayNudge(t.Context(), now) {
			t.Error("a nudge may expire what nobody has read")
		}
		if !e.prefetcher.Busy() {
			t.Error("nobody reads what the nudge waits for")
		}
		e.w.states.update(e.key, func(f *entityState) {
			f.deadLetters.Recognize()
			f.deadLetters.Observe(time.Now(), 1, 0)
		})
		if !e.mayNudge(t.Context(), now) {
			t.Error("a nudge waits although dead letters stay")
		}
		e.w.states.update(e.key, func(f *entityState) { f.deadLetters.Observe(time.Now(), 0, 1) })
		if e.mayNudge(t.Context(), now) {
			t.Error("a nudge may expire what nobody has read, and somebody takes the dead letters")
		}
		e.slots.Remove(slot)
		if !e.mayNudge(t.Context(), now) {
			t.Error("a nudge waits for a slot that was searched")
		}
	})
}

// The check of several slots is late. What the cache lacks of a slot was received in time if it was
// gone before that slot began, however long ago the first one did.
func TestTheCacheHasAllOfASlotThatWasReadBeforeItBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _, _ := absent(t)
		e.settings.known = true
		e.w.clock.Measured = func() scheduler.Instant { return scheduler.Instant{Time: time.Now(), Measured: true} }
		e.ranges.SetWhole(true)
		var slots []*scheduler.Companion
		for i := range 3 {
			slots = append(slots, &scheduler.Companion{
				SlotEnd: time.Now().Add(time.Duration(i+1) * time.Second), SlotLength: time.Second, Lives: []time.Duration{time.Minute},
			})
		}
		windows := judge.WindowsOf(slots...)
		if len(windows) != 1 {
			t.Fatalf("%d windows, want one of all slots", len(windows))
		}
		for i, lateBy := range []time.Duration{0, -500 * time.Millisecond, time.Millisecond} {
			if e.hasAllOf(&windows[0]) {
				t.Errorf("the cache has all before slot %d was read", i)
			}
			time.Sleep(time.Until(slots[i].SlotStart().Add(lateBy)))
			of := judge.WindowsOf(slots[i])
			read := func(context.Context, search.TimeRange, func(*link.Message) bool) (bool, error) { return false, nil }
			if err := e.ranges.Waiting(t.Context(), of[0].TimeRange(), search.Millis(time.Now()), read, nil, search.Due{}, nil); err != nil {
				t.Fatal(err)
			}
			if before := judge.WindowsOf(slots[:i+1]...); e.hasAllOf(&before[0]) != (lateBy <= 0) {
				t.Errorf("slot %d was read %v after it began, want that the cache has all of it only if that is not positive", i, lateBy)
			}
		}
	})
}
