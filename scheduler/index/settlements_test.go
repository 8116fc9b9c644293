// SPDX-License-Identifier: Apache-2.0

package index

import (
	"testing"
	"time"
)

// places is how many settlements are remembered.
const places = int64(len(Settlements{}.marks))

func TestSettlementsAreKnownByEntityNumberAndStamp(t *testing.T) {
	var s Settlements
	if settled, maybe := s.Has("orders", 7, noon); settled || maybe {
		t.Errorf("settled %v, maybe %v before anybody settles it", settled, maybe)
	}
	s.Begin("Orders", 7, noon)
	if settled, maybe := s.Has("orders", 7, noon); settled || !maybe {
		t.Errorf("settled %v, maybe %v before the broker has confirmed it, want maybe", settled, maybe)
	}
	s.Confirm("Orders", 7, noon)
	for name, c := range map[string]struct {
		entity string
		number int64
		stamp  time.Time
		want   bool
	}{
		"the message":                     {"orders", 7, noon.Add(time.Microsecond), true},
		"another number":                  {"orders", 8, noon, false},
		"a number with the same place":    {"orders", 7 + places, noon, false},
		"another stamp: made anew":        {"orders", 7, noon.Add(time.Millisecond), false},
		"another entity":                  {"payments", 7, noon, false},
		"a subscription of a like entity": {"orders/subscriptions/audit", 7, noon, false},
	} {
		if got, maybe := s.Has(c.entity, c.number, c.stamp); got != c.want || maybe {
			t.Errorf("%s: settled %v, maybe %v, want %v for certain", name, got, maybe, c.want)
		}
	}
}

// Each of the last settlements of an entity is known, however many there were before.
func TestTheLastSettlementsAreKnown(t *testing.T) {
	var s Settlements
	for number := range int64(3 * places) {
		s.Confirm("orders", number, noon)
	}
	for number := range int64(3 * places) {
		if got, _ := s.Has("orders", number, noon); got != (number >= 2*places) {
			t.Fatalf("number %d of %d: settled %v, want the last %d", number, 3*places, got, places)
		}
	}
}
