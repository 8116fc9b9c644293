// SPDX-License-Identifier: Apache-2.0

package monitor

import "testing"

func TestStatesOfAWatch(t *testing.T) {
	sights := []state{stateWaiting, stateInFlight, stateGone, stateMissed, stateMet}
	for _, row := range []struct {
		from state
		to   []state // by what is seen
	}{
		{stateWaiting, []state{stateWaiting, stateInFlight, stateGone, stateMissed, stateMet}},
		{stateInFlight, []state{stateWaiting, stateInFlight, stateGone, stateMissed, stateMet}},
		{stateGone, []state{stateWaiting, stateInFlight, stateGone, stateMissed, stateMet}},
		{stateUnexplained, []state{stateWaiting, stateInFlight, stateUnexplained, stateMissed, stateMet}},
		{stateMissed, []state{stateMissed, stateMissed, stateMissed, stateMissed, stateMissed}},
		{stateMet, []state{stateMet, stateMet, stateMet, stateMet, stateMet}},
	} {
		for i, seen := range sights {
			wt := watch{state: row.from}
			if wt.see(seen); wt.state != row.to[i] {
				t.Errorf("state %d, seen as %d: %d, want %d", row.from, seen, wt.state, row.to[i])
			}
		}
	}
}
