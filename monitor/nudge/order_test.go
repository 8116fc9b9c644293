// SPDX-License-Identifier: Apache-2.0

package nudge

import (
	"testing"
	"time"
)

func TestTheOrderOfNudgeAndCheck(t *testing.T) {
	now := noon.Add(time.Hour)
	for _, c := range []struct {
		from  OrderState
		event OrderEvent
		want  OrderState
		holds time.Duration // from now on
	}{
		{CheckFirst, LettersStayed, NudgeFirst, stayedFor},
		{CheckFirst, LettersTaken, CheckFirst, 0},
		{CheckFirst, ManyMissed, NudgeFirst, manyFor},
		{CheckFirst, LettersRead, CheckFirst, 0},
		{CheckFirst, FellBehind, NudgeFirst, manyFor},
		{CheckFirst, NothingFound, CheckOnly, checkOnlyFor},
		{NudgeFirst, LettersStayed, NudgeFirst, stayedFor},
		{NudgeFirst, LettersTaken, CheckFirst, 0},
		{NudgeFirst, ManyMissed, NudgeFirst, 10 * time.Second},
		{NudgeFirst, LettersRead, NudgeFirst, 10 * time.Second},
		{NudgeFirst, FellBehind, NudgeFirst, 10 * time.Second},
		{NudgeFirst, NothingFound, CheckOnly, checkOnlyFor},
		{CheckOnly, LettersStayed, NudgeFirst, stayedFor},
		{CheckOnly, LettersTaken, CheckOnly, 10 * time.Second},
		{CheckOnly, ManyMissed, CheckOnly, 10 * time.Second},
		{CheckOnly, LettersRead, CheckOnly, 10 * time.Second},
		{CheckOnly, FellBehind, CheckOnly, 10 * time.Second},
		{CheckOnly, NothingFound, CheckOnly, checkOnlyFor},
	} {
		o := Order{state: c.from, until: now.Add(10 * time.Second)}
		o.Observe(c.event, now)
		if got := o.Current(now); got != c.want {
			t.Errorf("state %d after event %d is %d, want %d", c.from, c.event, got, c.want)
		}
		if c.want == CheckFirst {
			continue
		}
		if got := o.Current(now.Add(c.holds - 1)); got != c.want {
			t.Errorf("state %d after event %d is %d just before %v, want %d still", c.from, c.event, got, c.holds, c.want)
		}
		if got := o.Current(now.Add(c.holds)); got != CheckFirst {
			t.Errorf("state %d after event %d is %d after %v, want the check first again", c.from, c.event, got, c.holds)
		}
	}
}

func TestANudgeThatFindsNothingBetweenOthersChangesNothing(t *testing.T) {
	var o Order
	o.Observe(FellBehind, noon)
	o.Observe(LettersRead, noon)
	o.Observe(NothingFound, noon.Add(manyFor-1))
	if got := o.Current(noon.Add(manyFor - 1)); got != NudgeFirst {
		t.Errorf("the order is %d, want the nudge first", got)
	}
	o.Observe(NothingFound, noon.Add(manyFor+1))
	if got := o.Current(noon.Add(manyFor + 1)); got != CheckOnly {
		t.Errorf("the order is %d once nothing is found for longer, want the check", got)
	}
}

func TestManyDeadlinesAreExpectedForAWhile(t *testing.T) {
	for event, many := range map[OrderEvent]bool{ManyMissed: true, FellBehind: true, LettersRead: false, LettersStayed: false, LettersTaken: false, NothingFound: false} {
		var o Order
		o.Observe(event, noon)
		if got := o.Many(noon.Add(manyFor - 1)); got != many {
			t.Errorf("after event %d many deadlines are expected: %v, want %v", event, got, many)
		}
		if o.Many(noon.Add(manyFor)) {
			t.Errorf("%v after event %d many deadlines are still expected", manyFor, event)
		}
	}
}
