// SPDX-License-Identifier: Apache-2.0

package search

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"overdue/internal/testing/racetest"
)

// within are the messages of a window, both ends included.
func within(all []Identity, from, until time.Time) []Identity {
	return slices.DeleteFunc(slices.Clone(all), func(i Identity) bool {
		return i.EnqueuedTime().Before(from) || i.EnqueuedTime().After(until)
	})
}

// wantBetween reads a window and fails unless see got what was enqueued in it, and nothing else.
func (s *scene) wantBetween(from, until time.Time) {
	s.Helper()
	s.must(s.view.Between(s.Context(), from, until, s.see))
	if diff := cmp.Diff(within(s.all(), from, until), s.take(), cmpopts.EquateEmpty()); diff != "" {
		s.Errorf("between %v and %v (-want +got):\n%s", from, until, diff)
	}
}

// A window costs as many peeks in a long queue as in a short one.
func TestAWindowOfALongQueueTakesFewPeeks(t *testing.T) {
	racetest.Skip(t, "one goroutine has nothing to race with")
	play(t, func(s *scene) {
		began := time.Now()
		s.send(50_000, 2*time.Millisecond)
		for _, c := range []struct {
			from, length time.Duration
			most         int // peeks
		}{
			{0, 100 * time.Millisecond, 1},
			{60 * time.Second, 100 * time.Millisecond, 8}, // the first seek knows the beginning alone
			{60*time.Second + 200*time.Millisecond, 100 * time.Millisecond, 2},
			{30 * time.Second, 0, 4},
			{31 * time.Second, 10 * time.Second, 24},
			{200 * time.Second, time.Second, 12}, // behind the end
			{200 * time.Second, time.Second, 3},
		} {
			from := began.Add(c.from).Truncate(time.Millisecond)
			if peeks := s.peeks(func() { s.wantBetween(from, from.Add(c.length)) }); peeks > c.most {
				s.Errorf("%v from %v on: %d peeks, want %d at most", c.length, c.from, peeks, c.most)
			}
		}
		if peeks := s.peeks(func() { s.wantBetween(time.Time{}, Forever) }); peeks > 202 {
			s.Errorf("%d peeks for all of 50,000 messages, want 202 at most", peeks)
		}
	})
}

// Messages come in batches that have one stamp, longer than a page, with pauses between them, and
// most of them are gone.
func TestWindowsOfMessagesOfOneMillisecond(t *testing.T) {
	racetest.Skip(t, "one goroutine has nothing to race with")
	play(t, func(s *scene) {
		var stamps []time.Time
		for i := range 8 {
			time.Sleep(time.Duration(i) * 777 * time.Millisecond)
			stamps = append(stamps, time.Now().Truncate(time.Millisecond))
			s.send(700, 0)
		}
		check := func() {
			for i, at := range stamps {
				s.wantBetween(at, at)
				s.wantBetween(at.Add(time.Millisecond), at.Add(3*time.Second))
				s.wantBetween(at.Add(-time.Millisecond), stamps[(i+2)%8])
			}
		}
		check()
		s.view.Forget()
		slices.Reverse(stamps)
		check()
		s.receive(2000)
		check()
		s.receive(3600)
		s.wantBetween(time.Time{}, Forever)
	})
}

func TestAWindowOfAPartitionedQueue(t *testing.T) {
	play(t, func(s *scene) {
		began := time.Now()
		s.send(1000, time.Millisecond)
		for range 2 { // the View finds out in the first window
			s.wantBetween(began.Add(200*time.Millisecond), began.Add(700*time.Millisecond))
		}
		if !s.view.Unordered {
			s.Error("the View does not know that the queue is partitioned")
		}
	}, partitioned)
}

// A queue is deleted and made again while a view knows it well. Its numbers begin at 1 again, and
// nothing that is known of the first one hides a message.
func TestWindowsOfARecreatedQueue(t *testing.T) {
	play(t, func(s *scene) {
		noticed := 0
		s.view.Recreated = func(string) { noticed++ }
		began := time.Now()
		s.send(3000, time.Millisecond)
		s.wantBetween(began, Forever)
		s.recreate()
		again := time.Now()
		s.send(3000, time.Millisecond)
		s.wantBetween(again.Add(time.Second), again.Add(1500*time.Millisecond))
		s.wantBetween(again, Forever)
		if noticed != 1 {
			s.Errorf("Recreated was called %d times, want once", noticed)
		}
	})
}

// A message that was found by number in the new queue is newer than all known messages of the old
// one.
func TestWindowsOfARecreatedQueueThatWasReadByNumber(t *testing.T) {
	play(t, func(s *scene) {
		noticed := 0
		s.view.Recreated = func(string) { noticed++ }
		s.send(300, time.Millisecond)
		s.wantBetween(time.Time{}, Forever)
		s.recreate()
		time.Sleep(3 * time.Second)
		s.send(3000, time.Millisecond)
		s.must(s.view.Find(s.Context(), s.all()[2000:], s.see))
		s.take()
		s.wantBetween(time.Time{}, Forever)
		if noticed != 1 {
			s.Errorf("Recreated was called %d times, want once", noticed)
		}
	})
}
