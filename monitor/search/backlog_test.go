// SPDX-License-Identifier: Apache-2.0

package search

import (
	"slices"
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/servicebus/link"
	"overdue/internal/testing/racetest"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// lifeOf gives messages lives of more than 5, and up to 15 seconds, by their numbers.
func lifeOf(m *link.Message) time.Duration {
	return 5*time.Second + time.Duration(m.SequenceNumber%1000+1)*10*time.Millisecond
}

// wantTaken takes what ends in a range of time, and fails unless that is what ends then of all.
func (s *scene) wantTaken(b *Backlog, all []Identity, from, until time.Time) {
	s.Helper()
	var got, want []Identity
	b.Take(from, until, func(w Waiting) bool {
		got = append(got, w.Identity)
		return true
	})
	for _, i := range all {
		end := i.EnqueuedTime().Add(lifeOf(&link.Message{SequenceNumber: i.Number}))
		if end.After(from) && !end.After(until) {
			want = append(want, i)
		}
	}
	byNumber := func(a, b Identity) int { return int(a.Number - b.Number) }
	// Of the last millisecond of a part, it may have some, and these twice.
	got = slices.DeleteFunc(got, func(i Identity) bool { return !slices.Contains(all, i) })
	slices.SortFunc(got, byNumber)
	got = slices.Compact(got)
	slices.SortFunc(want, byNumber)
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		s.Errorf("taken from %v until %v (-want +got):\n%s", from, until, diff)
	}
}

// extend extends a backlog, and fails unless it covers as much as wanted then.
func (s *scene) extend(b *Backlog, from, until, wantCovered time.Time) {
	s.Helper()
	s.must(b.Extend(s.Context(), s.view, from, until, until, lifeOf))
	if covered := b.Covered(from); !covered.Equal(wantCovered) {
		s.Errorf("Extend(%v, %v) covers until %v, want %v", from, until, covered, wantCovered)
	}
}

// Slots follow each other, each over a window of ten seconds. Together they read the queue once.
func TestABacklogReadsTheQueueOnce(t *testing.T) {
	racetest.Skip(t, "one goroutine has nothing to race with")
	play(t, func(s *scene) {
		began := time.Now().Truncate(time.Millisecond)
		s.send(30_000, time.Millisecond)
		all := s.all()
		var b Backlog
		const slot = 50 * time.Millisecond
		peeks := s.peeks(func() {
			for end := began.Add(slot); !end.After(began.Add(45 * time.Second)); end = end.Add(slot) {
				from, until := end.Add(-slot-15*time.Second), end.Add(-5*time.Second)
				s.extend(&b, from, until, until)
				s.wantTaken(&b, all, end.Add(-slot), end)
			}
		})
		if peeks > 950 {
			s.Errorf("%d peeks, want 950 at most: one for each slot, and the proofs of the index", peeks)
		}
		if b.waiting != 0 || len(b.bySecond) != 0 {
			s.Errorf("%d messages of %d seconds remain, want none", b.waiting, len(b.bySecond))
		}
	})
}

// A window that begins before the backlog has it start over. One that begins behind it does if
// nothing is lost.
func TestABacklogStartsOver(t *testing.T) {
	play(t, func(s *scene) {
		began := time.Now().Truncate(time.Millisecond)
		s.send(20_000, time.Millisecond)
		all, at := s.all(), func(d time.Duration) time.Time { return began.Add(d * time.Second) }
		var b Backlog
		check := func(from, until, wantFrom, wantUntil time.Duration) {
			s.Helper()
			s.extend(&b, at(from), at(until), at(wantUntil))
			want := within(all, at(wantFrom), at(wantUntil).Add(-1))
			if !b.from.Equal(at(wantFrom)) || b.waiting != len(want) {
				s.Errorf("from %d until %d: %d messages from %v on, want %d from %d s on", from, until, b.waiting, b.from, len(want), wantFrom)
			}
		}
		check(10, 11, 10, 11)
		check(3, 4, 3, 4)
		check(3, 6, 3, 6)
		check(8, 9, 3, 9)
		check(4, 5, 3, 9)
		check(16, 17, 3, 17)
		check(1, 2, 1, 2)
		s.wantTaken(&b, within(all, at(1), at(2).Add(-1)), time.Time{}, Forever)
		for from, until := range map[time.Duration]time.Duration{0: 0, 1: 2, 2: 2, 3: 3} {
			if got := b.Covered(at(from)); !got.Equal(at(until)) {
				s.Errorf("Covered(%d s) = %v, want %d s", from, got, until)
			}
		}
		check(3, 4, 3, 4) // nothing is lost
		b.Reset()
		b.Take(time.Time{}, Forever, func(Waiting) bool {
			s.Error("a backlog that was reset has messages")
			return true
		})
		check(3, 4, 3, 4)
	})
}

// A window that begins before the backlog and reaches into it has it begin earlier: slots over
// longer times to live come later.
func TestABacklogBeginsEarlier(t *testing.T) {
	play(t, func(s *scene) {
		began := time.Now().Truncate(time.Millisecond)
		s.send(10_000, time.Millisecond)
		at := func(d time.Duration) time.Time { return began.Add(d * time.Second) }
		var b Backlog
		s.extend(&b, at(3), at(9), at(9))
		b.Note(at(20))
		peeks := s.peeks(func() { s.extend(&b, at(2), at(6), at(9)) })
		if peeks > 8 {
			s.Errorf("%d peeks, want those of the 1,000 messages that it lacked", peeks)
		}
		if got := b.CoveredBefore(at(2), at(20)); !got.Equal(at(2)) {
			s.Errorf("it covered until %v before, want nothing", got)
		}
		s.wantTaken(&b, within(s.all(), at(2), at(9).Add(-1)), time.Time{}, Forever)
	})
}

// A full backlog covers less, and goes on when messages have left it.
func TestAFullBacklogSaysHowFarItGoes(t *testing.T) {
	play(t, func(s *scene) {
		began := time.Now().Truncate(time.Millisecond)
		for range 1000 {
			s.send(3, 0) // of one millisecond, which is in the backlog as a whole or not at all
			time.Sleep(time.Millisecond)
		}
		all, until := s.all(), began.Add(time.Second)
		b := Backlog{most: 400}
		covered := began.Add(133 * time.Millisecond)
		s.extend(&b, began, until, covered)
		s.wantTaken(&b, within(all, began, covered.Add(-1)), time.Time{}, Forever)
		steps := 0
		for ; covered.Before(until) && steps < 20; steps++ {
			from := covered
			s.must(b.Extend(s.Context(), s.view, from, until, until, lifeOf))
			covered = b.Covered(from)
			s.wantTaken(&b, within(all, from, covered.Add(-1)), time.Time{}, Forever)
		}
		if steps > 8 {
			s.Errorf("%d steps for 3,000 messages, want 8 at most", steps)
		}
	})
}

// Nobody takes messages that were enqueued before any window, or of which no companion is left. A
// backlog that is full of them starts over.
func TestAFullBacklogOfWhatNobodyTakesStartsOver(t *testing.T) {
	play(t, func(s *scene) {
		began := time.Now().Truncate(time.Millisecond)
		at := func(ms time.Duration) time.Time { return began.Add(ms * time.Millisecond) }
		for range 1000 {
			s.send(3, 0)
			time.Sleep(time.Millisecond)
		}
		all, b := s.all(), Backlog{most: 400}
		s.extend(&b, at(0), at(1000), at(133))
		b.Take(began, Forever, func(Waiting) bool { return false })
		s.extend(&b, at(50), at(100), at(100))
		s.extend(&b, at(60), at(1000), at(183))
		s.extend(&b, at(300), at(1000), at(300)) // the backlog does not go that far
		s.wantTaken(&b, within(all, at(50), at(182)), time.Time{}, Forever)
	})
}

// A backlog reads ahead a little, and knows what it covered at an instant.
func TestABacklogReadsAhead(t *testing.T) {
	play(t, func(s *scene) {
		began := time.Now().Truncate(time.Millisecond)
		at := func(d time.Duration) time.Time { return began.Add(d * time.Millisecond) }
		s.send(20_000, time.Millisecond)
		var b Backlog
		extend := func(need, most time.Duration) {
			s.must(b.Extend(s.Context(), s.view, at(0), at(need), at(most), lifeOf))
		}
		extend(100, 500)
		b.Note(at(30_000))
		extend(1200, 20_000) // farther than it reads ahead
		b.Note(at(40_000))
		if far := b.Covered(at(0)).Sub(at(1200)); far < 500*time.Millisecond || far > 2*time.Second {
			s.Errorf("%v are read ahead, want those of some pages", far)
		}
		for noted, want := range map[time.Duration]time.Time{29_999: at(0), 30_000: at(500), 39_999: at(500), 40_000: b.until} {
			if got := b.CoveredBefore(at(0), at(noted)); !got.Equal(want) {
				s.Errorf("CoveredBefore(%d ms) = %v, want %v", noted, got.Sub(began), want.Sub(began))
			}
		}
		b.Reset()
		if got := b.CoveredBefore(at(0), at(50_000)); !got.Equal(at(0)) {
			s.Errorf("a backlog that was reset covered until %v, want nothing", got)
		}
	})
}

// A message that states no life is not kept, nor a scheduled one: it gets another identity.
func TestABacklogKeepsWhatEnds(t *testing.T) {
	play(t, func(s *scene) {
		began := time.Now().Truncate(time.Millisecond)
		s.send(1000, time.Millisecond)
		sender, err := s.ns.Client(s.T).NewSender("orders", nil)
		s.must(err)
		at := time.Now().Add(time.Hour)
		s.must(sender.SendMessage(s.Context(), &azservicebus.Message{ScheduledEnqueueTime: &at}, nil))
		var b Backlog
		err = b.Extend(s.Context(), s.view, began, began.Add(2*time.Second), began.Add(2*time.Second), func(m *link.Message) time.Duration {
			return time.Duration(m.SequenceNumber%2) * time.Hour
		})
		if s.must(err); b.waiting != 500 {
			s.Errorf("%d messages are kept, want 500", b.waiting)
		}
	})
}

// A read fails in the middle. The next one goes on there.
func TestABacklogGoesOnAfterAnError(t *testing.T) {
	play(t, func(s *scene) {
		began := time.Now().Truncate(time.Millisecond)
		for range 1000 {
			s.send(3, 0)
			time.Sleep(time.Millisecond)
		}
		until := began.Add(time.Second)
		s.ns.Broker.Default().Inject(broker.Fault{Operation: broker.OnManagement, Request: "com.microsoft:peek-message", After: 5, Times: 1, Error: broker.ServerBusy()})
		var b Backlog
		err := b.Extend(s.Context(), s.view, began, until, until, lifeOf)
		covered := b.Covered(began)
		if err == nil || !covered.After(began.Add(300*time.Millisecond)) || !covered.Before(until) {
			s.Errorf("Extend = %v, %v, want a part and an error", covered, err)
		}
		s.extend(&b, began, until, until)
		s.wantTaken(&b, s.all(), time.Time{}, Forever)
	})
}

// The caller resets the backlog as soon as it hears that the queue was made again, in the middle of
// a read.
func TestABacklogOfARecreatedQueue(t *testing.T) {
	play(t, func(s *scene) {
		var b Backlog
		s.view.Recreated = func(string) { b.Reset() }
		began := time.Now().Truncate(time.Millisecond)
		s.send(3000, time.Millisecond)
		s.extend(&b, began, began.Add(3*time.Second), began.Add(3*time.Second))
		s.recreate()
		s.send(3000, time.Millisecond)
		s.extend(&b, began, began.Add(5*time.Second), began) // it has what followed the old queue
		s.extend(&b, began, began.Add(5*time.Second), began.Add(5*time.Second))
		s.wantTaken(&b, within(s.all(), b.from, b.until.Add(-1)), time.Time{}, Forever)
	})
}

func TestABacklogOfAPartitionedQueueIsEmpty(t *testing.T) {
	play(t, func(s *scene) {
		began := time.Now()
		s.send(500, time.Millisecond)
		var b Backlog
		for range 2 {
			s.extend(&b, began, began.Add(time.Second), began)
			if b.waiting != 0 {
				s.Errorf("%d messages, want none", b.waiting)
			}
		}
	}, partitioned)
}
