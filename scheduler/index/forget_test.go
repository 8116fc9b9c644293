// SPDX-License-Identifier: Apache-2.0

package index

import (
	"fmt"
	"testing"
	"time"
)

// A companion that waits no longer is not reported, and has no number. The remaining references of
// it go with newer ones.
func TestTheIndexForgetsCompanionsThatAreDue(t *testing.T) {
	x := New(4)
	for round := range 100 {
		at := noon.Add(time.Duration(round) * time.Minute)
		var refs []Reference
		for i := range 4 {
			refs = append(refs, sent(fmt.Sprint("m-", round, "-", i), at))
		}
		x.Put("orders", refs)
		x.Confirm(refs, at)
		id := carry(x, byte(round), refs...)
		if !x.SetNumber(id, 7) {
			t.Fatalf("round %d: a companion that waits is not known", round)
		}
		x.Forget(id)
		if x.SetNumber(id, 8) {
			t.Errorf("round %d: the companion is still known", round)
		}
		if len(x.carriers) != 0 || len(x.byKey) != 4 || len(x.blind) != 0 {
			t.Fatalf("round %d: %d companions and %d keys are left, and takes are forbidden in %d entities, want none, 4 and none", round, len(x.carriers), len(x.byKey), len(x.blind))
		}
	}
}

// Of messages with one id the latest are known, and no more than can be distinguished with little
// effort.
func TestTheIndexForgetsTheOldestOfManyWithOneID(t *testing.T) {
	x := New(1000)
	for i := range 100 {
		x.Put("orders", []Reference{sent("m", noon.Add(time.Duration(i)*time.Minute))})
		n := len(x.byKey[KeyOf("orders", "m", "")])
		if want := min(i+1, maxAlike); n != want {
			t.Fatalf("%d are known of %d, want %d", n, i+1, want)
		}
	}
}

// The index does not know the messages for which slots stand, so it cannot know which was settled.
func TestSettlementsOfMessagesInSlotsAreNotTaken(t *testing.T) {
	x := New(References)
	x.Forbid("Orders", noon.Add(time.Second))
	x.Forbid("orders", noon) // changes nothing
	r := sent("m", noon)
	x.Put("orders", []Reference{r})
	x.Confirm([]Reference{r}, noon.Add(20*time.Millisecond))
	if x.Take(stamped("m", noon)) {
		t.Error("taken, though it may be a message of a slot")
	}
}
