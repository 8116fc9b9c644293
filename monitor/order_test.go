// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"testing"
	"time"
)

func TestTheOrderOfNudgeAndCheck(t *testing.T) {
	now := noon.Add(time.Hour)
	for _, c := range []struct {
		from  orderState
		event orderEvent
		want  orderState
		holds time.Duration // from now on
	}{
		{checkFirst, lettersStayed, nudgeFirst, stayedFor},
		{checkFirst, lettersTaken, checkFirst, 0},
		{checkFirst, manyMissed, nudgeFirst, busyFor},
		{checkFirst, fellBehind, nudgeFirst, busyFor},
		{checkFirst, nothingFound, checkOnly, checkOnlyFor},
		{nudgeFirst, lettersStayed, nudgeFirst, stayedFor},
		{nudgeFirst, lettersTaken, checkFirst, 0},
		{nudgeFirst, manyMissed, nudgeFirst, 10 * time.Second},
		{nudgeFirst, fellBehind, nudgeFirst, 10 * time.Second},
		{nudgeFirst, nothingFound, checkOnly, checkOnlyFor},
		{checkOnly, lettersStayed, nudgeFirst, stayedFor},
		{checkOnly, lettersTaken, checkOnly, 10 * time.Second},
		{checkOnly, manyMissed, checkOnly, 10 * time.Second},
		{checkOnly, fellBehind, checkOnly, 10 * time.Second},
		{checkOnly, nothingFound, checkOnly, checkOnlyFor},
	} {
		o := order{state: c.from, until: now.Add(10 * time.Second)}
		o.observe(c.event, now)
		if got := o.current(now); got != c.want {
			t.Errorf("state %d after event %d is %d, want %d", c.from, c.event, got, c.want)
		}
		if c.want == checkFirst {
			continue
		}
		if got := o.current(now.Add(c.holds - 1)); got != c.want {
			t.Errorf("state %d after event %d is %d just before %v, want %d still", c.from, c.event, got, c.holds, c.want)
		}
		if got := o.current(now.Add(c.holds)); got != checkFirst {
			t.Errorf("state %d after event %d is %d after %v, want the check first again", c.from, c.event, got, c.holds)
		}
	}
}

func TestANudgeThatFindsNothingBetweenOthersChangesNothing(t *testing.T) {
	var o order
	o.observe(manyMissed, noon)
	o.observe(nothingFound, noon.Add(busyFor-1))
	if got := o.current(noon.Add(busyFor - 1)); got != nudgeFirst {
		t.Errorf("the order is %d, want the nudge first", got)
	}
	o.observe(nothingFound, noon.Add(busyFor+1))
	if got := o.current(noon.Add(busyFor + 1)); got != checkOnly {
		t.Errorf("the order is %d once nothing is found for longer, want the check", got)
	}
}
