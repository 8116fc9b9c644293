// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

func ignore(Result) {}

func TestNotifiedEventsDropTheOldest(t *testing.T) {
	events := Record{limit: 100}
	for i := range 2*events.limit + 10 {
		if !events.Begin(KeyOf(fmt.Sprint(i)), ignore) {
			t.Fatalf("event %d is taken for notified", i)
		}
		events.End(KeyOf(fmt.Sprint(i)), Result{})
	}
	if events.IsFinal("99") || !events.IsFinal("100") || !events.IsFinal(fmt.Sprint(2*events.limit+9)) {
		t.Error("want the oldest generation dropped and no others")
	}
	again := Result{Err: errors.New("not called")}
	if events.Begin(KeyOf("101"), func(r Result) { again = r }) || again.Err != nil {
		t.Errorf("an event that was notified begins again, or its result is %v", again.Err)
	}
}

// An event that waits in line while others are done must stay known, or the companion that comes
// back meanwhile has it notified a second time.
func TestAnEventThatIsBeingNotifiedIsNeverDropped(t *testing.T) {
	events := Record{limit: 100}
	events.Begin(KeyOf("slow"), ignore)
	for i := range 3 * events.limit {
		id := fmt.Sprint(i)
		events.Begin(KeyOf(id), ignore)
		r := Result{}
		if i%2 == 0 {
			r.Err = errors.New("refused")
		}
		events.End(KeyOf(id), r)
	}
	if events.Begin(KeyOf("slow"), ignore) {
		t.Error("an event that is being notified begins a second time")
	}
	// Those that failed take no place: the last hundred that were done are all known.
	for i := 3*events.limit - 1; i > events.limit; i -= 2 {
		if !events.IsFinal(fmt.Sprint(i)) {
			t.Fatalf("event %d of %d was done and was dropped", i, 3*events.limit)
		}
	}
}

func TestAnEventThatNoSinkAcceptedBeginsAgain(t *testing.T) {
	var events Record
	var got []error
	wait := func(r Result) { got = append(got, r.Err) }
	events.Begin(KeyOf("e"), wait)
	if events.Begin(KeyOf("e"), wait) {
		t.Error("an event that is being notified begins again")
	}
	refused := errors.New("refused")
	events.End(KeyOf("e"), Result{Err: refused})
	if want := []error{refused, refused}; !slices.Equal(got, want) {
		t.Errorf("those that wait for the notification get %v, want %v", got, want)
	}
	if !events.Begin(KeyOf("e"), wait) {
		t.Error("an event that found refused does not begin again")
	}
}
