// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"testing"
	"time"

	"overdue/scheduler"
)

func slotAt(end time.Duration, lives ...time.Duration) *scheduler.Companion {
	return &scheduler.Companion{SlotEnd: noon.Add(end), SlotLength: 100 * time.Millisecond, Lives: lives}
}

// A message belongs to the slot in which its life ends. The life is the time to live that it
// states, the default that caps it, or the default that the slot knows.
func TestSlotOfAMessage(t *testing.T) {
	withDefault := slotAt(200*time.Millisecond, 10*time.Second)
	withDefault.Defaults = []time.Duration{10 * time.Second}
	slots := []*scheduler.Companion{slotAt(0, time.Second), slotAt(100*time.Millisecond, time.Second, time.Minute), withDefault}
	for _, c := range []struct {
		name     string
		end      time.Duration // of its life
		life     time.Duration
		ttl      time.Duration
		settings Settings
		slot     int // -1: none
	}{
		{"in the middle", 50 * time.Millisecond, time.Second, time.Second, Settings{}, 1},
		{"at the end", 0, time.Second, time.Second, Settings{}, 0},
		{"right behind the end", time.Millisecond, time.Second, time.Second, Settings{}, 1},
		{"another life", -50 * time.Millisecond, time.Minute, time.Minute, Settings{}, -1},
		{"before all", -100 * time.Millisecond, time.Second, time.Second, Settings{}, -1},
		{"behind all", 201 * time.Millisecond, 10 * time.Second, 10 * time.Second, Settings{}, -1},
		{"capped", 50 * time.Millisecond, time.Minute, time.Hour, Settings{DefaultMessageTimeToLive: time.Minute}, 1},
		{"no life", 150 * time.Millisecond, 10 * time.Second, 0, Settings{}, -1},
		{"the default", 150 * time.Millisecond, 10 * time.Second, 0, Settings{DefaultMessageTimeToLive: 10 * time.Second}, 2},
		{"a former default", 150 * time.Millisecond, 10 * time.Second, 0, Settings{DefaultMessageTimeToLive: time.Hour, DefaultSince: noon}, 2},
		{"a former default of others", 50 * time.Millisecond, time.Minute, 0, Settings{DefaultMessageTimeToLive: time.Hour, DefaultSince: noon}, -1},
	} {
		slot, life := SlotOf(slots, noon.Add(c.end-c.life), c.ttl, c.settings)
		switch {
		case c.slot < 0 && slot != nil:
			t.Errorf("%s: slot %d, want none", c.name, slices.Index(slots, slot))
		case c.slot >= 0 && (slot != slots[c.slot] || life != c.life):
			t.Errorf("%s: slot %d with %v, want %d with %v", c.name, slices.Index(slots, slot), life, c.slot, c.life)
		}
	}
}

// A message that lies in the windows of a slot and belongs to it is found, wherever in them it
// lies.
func TestMessagesOfASlotLieInItsWindows(t *testing.T) {
	slot := slotAt(0, time.Second, time.Minute)
	windows := WindowsOf(slot)
	for _, life := range slot.Lives {
		for end := -200 * time.Millisecond; end <= 100*time.Millisecond; end += time.Millisecond {
			stamp := noon.Add(end - life)
			found, _ := SlotOf([]*scheduler.Companion{slot}, stamp, life, Settings{})
			inside := slices.ContainsFunc(windows, func(w Window) bool {
				return !w.From.After(stamp) && !w.Until.Before(stamp)
			})
			if found != nil && !inside {
				t.Fatalf("a message of %v that ends %v after noon belongs to the slot, and lies outside of %v", life, end, windows)
			}
		}
	}
}
