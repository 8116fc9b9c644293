// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"testing"
	"testing/synctest"
	"time"

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
