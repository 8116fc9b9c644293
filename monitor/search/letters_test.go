// SPDX-License-Identifier: Apache-2.0

package search

import (
	"testing"
	"time"

	"overdue/internal/servicebus/link"
)

func TestTheStateOfDeadLettersFollowsTheirWitnesses(t *testing.T) {
	of := func(state LetterState) Letters { return Letters{state: state, Confirmed: noon} }
	for _, c := range []struct {
		from       LetterState
		kept, lost int
		want       LetterState
	}{
		{LettersUnknown, 0, 0, LettersUnknown},
		{LettersUnknown, 2, 0, LettersStay},
		{LettersUnknown, 0, 1, LettersTaken},
		{LettersUnknown, 7, 1, LettersTaken},
		{LettersStay, 0, 0, LettersStay},
		{LettersStay, 1, 0, LettersStay},
		{LettersStay, 7, 1, LettersTaken},
		{LettersTaken, 0, 0, LettersTaken},
		{LettersTaken, 8, 0, LettersTaken},
		{LettersTaken, 0, 8, LettersTaken},
	} {
		q := of(c.from)
		q.Observe(noon.Add(time.Second), c.kept, c.lost)
		if got := q.Current(noon.Add(time.Second)); got != c.want {
			t.Errorf("state %d with %d kept and %d lost becomes %d, want %d", c.from, c.kept, c.lost, got, c.want)
		}
	}
	for state, holds := range map[LetterState]time.Duration{LettersStay: stayHolds, LettersTaken: takenHolds} {
		q := of(state)
		if got := q.Current(noon.Add(holds)); got != state {
			t.Errorf("after %v state %d is %d, want it unchanged", holds, state, got)
		}
		if got := q.Current(noon.Add(holds + 1)); got != LettersUnknown {
			t.Errorf("after more than %v state %d is %d, want unknown", holds, state, got)
		}
	}
}

func TestAPageShowsThatWitnessesStay(t *testing.T) {
	page := func(numbers ...int64) (page []*link.Message) {
		for _, n := range numbers {
			page = append(page, &link.Message{SequenceNumber: n, EnqueuedTime: noon})
		}
		return page
	}
	for _, c := range []struct {
		name string
		page []*link.Message
		at   time.Duration
		want LetterState
	}{
		{"both", page(1, 2, 3, 9), time.Second, LettersStay},
		{"one, and the other may stand behind", page(1, 2, 3), time.Second, LettersStay},
		{"the first is missing", page(2, 3, 9), time.Second, LettersUnknown},
		{"the last is missing", page(1, 3, 10), time.Second, LettersUnknown},
		{"none", page(3, 4), time.Second, LettersUnknown},
		{"they are young", page(1, 2, 3, 9), witnessAge - 1, LettersUnknown},
	} {
		var q Letters
		q.Recognize()
		q.Add(Identity{1, noon.UnixMilli()}, noon)
		q.Add(Identity{9, noon.UnixMilli()}, noon.Add(witnessEvery))
		q.ObservePage(c.page, false, noon.Add(c.at))
		if got := q.Current(noon.Add(c.at)); got != c.want {
			t.Errorf("%s: state %d, want %d", c.name, got, c.want)
		}
	}
}

func TestWitnessesAreOldAndApart(t *testing.T) {
	var q Letters
	q.Add(Identity{99, noon.UnixMilli()}, noon)
	if n := len(q.Witnesses(noon.Add(time.Minute))); n != 0 {
		t.Errorf("%d letters are witnesses before one was recognized, want none", n)
	}
	q.Recognize()
	for i := range int64(20) {
		q.Add(Identity{i + 1, noon.UnixMilli()}, noon.Add(time.Duration(i)*witnessEvery/2))
	}
	if n := len(q.Witnesses(noon.Add(witnessAge - 1))); n != 0 {
		t.Errorf("%d letters are witnesses at once, want none", n)
	}
	all := q.Witnesses(noon.Add(time.Minute))
	if len(all) != maxWitnesses {
		t.Fatalf("%d witnesses, want the last %d", len(all), maxWitnesses)
	}
	for _, w := range all {
		if w.Number%2 == 0 || w.Number < 5 {
			t.Errorf("number %d is a witness, want the last of those that are %v apart", w.Number, witnessEvery)
		}
	}
}
