// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func ignore(Result) {}

// notifyEach records n events as notified, from that number on.
func (t *Record) notifyEach(first, n int) {
	for i := first; i < first+n; i++ {
		t.Begin(KeyOf(fmt.Sprint(i)), ignore)
		t.End(KeyOf(fmt.Sprint(i)), Result{})
	}
}

func TestNotifiedEventsDropTheOldest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := Record{least: 100}
		for generation := range 3 {
			events.notifyEach(100*generation, 100)
			time.Sleep(rememberFor)
		}
		events.notifyEach(300, 1)
		if events.IsFinal("199") || !events.IsFinal("200") || !events.IsFinal("300") {
			t.Error("want the oldest generations dropped and no others")
		}
		again := Result{Err: errors.New("not called")}
		if events.Begin(KeyOf("201"), func(r Result) { again = r }) || again.Err != nil {
			t.Errorf("an event that was notified begins again, or its result is %v", again.Err)
		}
	})
}

// In a burst, the searches of two companions for one message are many events apart.
func TestEventsOfABurstAreRememberedHoweverManyThereAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := Record{least: 100}
		for i := range 50 {
			events.notifyEach(100*i, 100)
			time.Sleep(rememberFor / 50)
		}
		if !events.IsFinal("0") {
			t.Errorf("an event of %v ago was dropped", rememberFor)
		}
	})
}

// An event that waits in line while others are done must stay known, or the companion that comes
// back meanwhile has it notified a second time.
func TestAnEventThatIsBeingNotifiedIsNeverDropped(t *testing.T) {
	events := Record{least: 100}
	events.Begin(KeyOf("slow"), ignore)
	for i := range 3 * events.least {
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
	for i := 3*events.least - 1; i > events.least; i -= 2 {
		if !events.IsFinal(fmt.Sprint(i)) {
			t.Fatalf("event %d of %d was done and was dropped", i, 3*events.least)
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
