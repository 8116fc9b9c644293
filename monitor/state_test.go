// SPDX-License-Identifier: Apache-2.0

package monitor

import "testing"

func TestStatesOfAWatch(t *testing.T) {
	sights := []sight{foundEarly, leftInPlace, notFound, foundExpired, foundOther}
	for _, row := range []struct {
		from state
		to   []state // by sight
	}{
		{stateWaiting, []state{stateWaiting, stateInFlight, stateGone, stateMissed, stateMet}},
		{stateInFlight, []state{stateWaiting, stateInFlight, stateGone, stateMissed, stateMet}},
		{stateGone, []state{stateWaiting, stateInFlight, stateGone, stateMissed, stateMet}},
		{stateUnexplained, []state{stateWaiting, stateInFlight, stateUnexplained, stateMissed, stateMet}},
		{stateMissed, []state{stateMissed, stateMissed, stateMissed, stateMissed, stateMissed}},
		{stateMet, []state{stateMet, stateMet, stateMet, stateMet, stateMet}},
	} {
		for i, seen := range sights {
			if got := row.from.after(seen); got != row.to[i] {
				t.Errorf("state %d after sight %d = %d, want %d", row.from, seen, got, row.to[i])
			}
		}
	}
}
