// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"testing"
	"time"

	"overdue/internal/servicebus/link"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

func TestStatesOfAWatch(t *testing.T) {
	sights := []sight{foundEarly, foundOverdue, expiresSoon, leftInPlace, notFound, foundExpired}
	for _, row := range []struct {
		from state
		to   []state // by sight
	}{
		{stateWaiting, []state{stateWaiting, stateOverdue, stateWaiting, stateWaiting, stateGone, stateMissed}},
		{stateOverdue, []state{stateWaiting, stateOverdue, stateExpiring, stateInFlight, stateGone, stateMissed}},
		{stateExpiring, []state{stateWaiting, stateOverdue, stateExpiring, stateExpiring, stateGone, stateMissed}},
		{stateInFlight, []state{stateWaiting, stateOverdue, stateInFlight, stateInFlight, stateGone, stateMissed}},
		{stateGone, []state{stateWaiting, stateOverdue, stateGone, stateGone, stateGone, stateMissed}},
		{stateMissed, []state{stateMissed, stateMissed, stateMissed, stateMissed, stateMissed, stateMissed}},
	} {
		for i, seen := range sights {
			if got := row.from.after(seen); got != row.to[i] {
				t.Errorf("state %d after sight %d = %d, want %d", row.from, seen, got, row.to[i])
			}
		}
	}
}

func message(change func(*link.Message)) *link.Message {
	m := &link.Message{MessageID: "m", EnqueuedTime: noon, SequenceNumber: 7}
	if change != nil {
		change(m)
	}
	return m
}
