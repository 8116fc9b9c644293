// SPDX-License-Identifier: Apache-2.0

package index

import (
	"fmt"
	"testing"
	"time"
)

// A companion that waits no longer leaves nothing in the index: neither its references, nor its
// number, nor a place that others would be short of.
func TestTheIndexForgetsCompanionsThatAreDue(t *testing.T) {
	x := NewMemory(4)
	for round := range 100 {
		at := noon.Add(time.Duration(round) * time.Minute)
		var refs []Reference
		for i := range 4 {
			refs = append(refs, sent(fmt.Sprint("m-", round, "-", i), at))
		}
		x.Put("orders", refs)
		x.Confirm("orders", refs, at)
		id := carry(x, byte(round), refs...)
		if !x.Number(id, 7) || x.NumberOf(id) != 7 {
			t.Fatalf("round %d: the number of a companion that waits is %d, want 7", round, x.NumberOf(id))
		}
		x.Forget(id)
		if x.Number(id, 8) || x.NumberOf(id) != 0 {
			t.Errorf("round %d: the companion is still known by number %d", round, x.NumberOf(id))
		}
		for i := range refs {
			if key := KeyOf("orders", refs[i].MessageID, ""); x.Known(key) || x.Taken("orders", &refs[i]) {
				t.Errorf("round %d: reference %d is still known", round, i)
			}
		}
		if len(x.carriers) != 0 || x.hand != 0 {
			t.Fatalf("round %d: %d companions are left, and %d places were given up for want of room, want none", round, len(x.carriers), x.hand)
		}
	}
}

// Of messages with one id the latest are known, and no more than can be distinguished with little
// effort.
func TestTheIndexForgetsTheOldestOfManyWithOneID(t *testing.T) {
	x := NewMemory(1000)
	for i := range 100 {
		x.Put("orders", []Reference{sent("m", noon.Add(time.Duration(i)*time.Minute))})
		n := 0
		for at := x.latestLocked(KeyOf("orders", "m", "")); at != none; at = x.earlierLocked(at) {
			n++
		}
		if want := min(i+1, maxAlike); n != want {
			t.Fatalf("%d are known of %d, want %d", n, i+1, want)
		}
	}
}
