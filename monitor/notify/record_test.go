// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"errors"
	"slices"
	"testing"
)

func ignore(Result) {}

// An event that waits in line while others are done must stay known, or the companion that comes
// back meanwhile has it notified a second time.
func TestOnlyTheOldestEventsThatAreDoneAreDropped(t *testing.T) {
	const running, last = 1 << 40, 2 * leastRemembered
	var events Record
	events.begin(running, ignore)
	for k := range key(last + 1) {
		events.addLocked(k)
	}
	if events.isDoneLocked(0) || !events.isDoneLocked(leastRemembered) || !events.isDoneLocked(last) {
		t.Error("want the oldest events dropped, and none of the last million")
	}
	again := Result{Err: errors.New("not called")}
	if events.begin(last, func(r Result) { again = r }) || again.Err != nil {
		t.Errorf("an event that was notified begins again, or its result is %v", again.Err)
	}
	if events.begin(running, ignore) {
		t.Error("an event that is being notified begins a second time")
	}
}

func TestAnEventThatNeedsNoNotificationIsKnown(t *testing.T) {
	var events Record
	events.begin(keyOf("running"), ignore)
	events.Note("noted")
	for id, want := range map[string]bool{"running": false, "noted": true, "other": false} {
		if got := events.IsFinal(id); got != want {
			t.Errorf("%s: final = %v, want %v", id, got, want)
		}
	}
}

func TestAnEventThatNoSinkAcceptedBeginsAgain(t *testing.T) {
	var events Record
	var got []error
	wait := func(r Result) { got = append(got, r.Err) }
	events.begin(keyOf("e"), wait)
	if events.begin(keyOf("e"), wait) {
		t.Error("an event that is being notified begins again")
	}
	refused := errors.New("refused")
	events.end(keyOf("e"), Result{Err: refused})
	if want := []error{refused, refused}; !slices.Equal(got, want) {
		t.Errorf("those that wait for the notification get %v, want %v", got, want)
	}
	if !events.begin(keyOf("e"), wait) {
		t.Error("an event that found refused does not begin again")
	}
}
