// SPDX-License-Identifier: Apache-2.0

package dlq

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/servicebus/link"
	"overdue/internal/testing/brokertest"
)

// takes has another receiver take n dead letters under lock.
func (s *scene) takes(n int) (ts []*taken) {
	s.Helper()
	r, err := s.links().BareReceiver(s.Context(), orders.Path(), nil)
	if err != nil {
		s.Fatal(err)
	}
	ms, err := receive(s.Context(), r, n)
	if err != nil || len(ms) != n {
		s.Fatalf("received %d, %v, want %d", len(ms), err, n)
	}
	for _, m := range ms {
		ts = append(ts, &taken{number: m.SequenceNumber, message: m, receiver: r})
	}
	return ts
}

// A message that was taken off or has lost its lock is settled: neither is to be given back.
func TestWhatIsCompletedIsSettled(t *testing.T) {
	play(t, func(s *scene) {
		s.dead(2)
		for _, c := range []struct {
			lapses bool
			gone   []int64
		}{{true, nil}, {false, []int64{1, 2}}} {
			ts := s.takes(2)
			if c.lapses {
				time.Sleep(2 * time.Minute)
			}
			gone, err := complete(s.Context(), ts)
			if err != nil || !slices.Equal(gone, c.gone) {
				s.Errorf("locks lapsed = %v: complete = %v, %v, want %v", c.lapses, gone, err, c.gone)
			}
			if !ts[0].settled || !ts[1].settled {
				s.Errorf("locks lapsed = %v: settled = %v, %v, want both", c.lapses, ts[0].settled, ts[1].settled)
			}
		}
	})
}

// One that is not meant is held, and not looked at again and again, while what is meant does not
// come.
func TestASingleOtherIsHeld(t *testing.T) {
	play(t, func(s *scene) {
		s.dead(2)
		s.takes(1)
		chosen := map[int64]bool{1: true}
		if _, _, err := Purge(s.Context(), s.links(), orders, chosen, hold, 0, nil); err != nil || !chosen[1] {
			s.Errorf("purge of one that is locked, before another one: %v, left %v, want that it could not be had", err, chosen)
		}
	})
}

// A purge that comes upon some chosen letters each time need not give up, however often the others
// have to be given back.
func TestWhoGetsOnIsNotBuried(t *testing.T) {
	play(t, func(s *scene) {
		s.dead(150)
		chosen := map[int64]bool{1: true, 101: true, 102: true}
		if _, _, err := Purge(s.Context(), s.links(), orders, chosen, -1, 0, nil); err != nil || len(chosen) != 0 {
			s.Errorf("purge = %v, left %v, want none", err, chosen)
		}
	})
}

// Copies stand in the order of their dead letters, in whatever order these have come.
func TestCopiesKeepTheOrder(t *testing.T) {
	play(t, func(s *scene) {
		s.dead(3)
		links := s.links()
		out, err := links.Sender(s.Context(), "again")
		if err != nil {
			s.Fatal(err)
		}
		ts := s.takes(3)
		slices.Reverse(ts)
		j := openJournal(s.T, filepath.Join(s.TempDir(), "journal.db"))
		r := &Resubmission{Links: links, Place: orders, Out: out, Journal: j}
		if err := r.copyAll(s.Context(), ts, newPace(0), &Outcome{}); err != nil {
			s.Fatal(err)
		}
		q, _ := s.ns.Broker.Queue("again")
		var got []int64
		for _, v := range brokertest.Seen(q.Peek(nil, 0, 10)) {
			m, err := amqp.ParseMessage(v.Body)
			if err != nil {
				s.Fatal(err)
			}
			r, _ := amqp.MapLookup(m.ApplicationProperties, PropertyNumber)
			got = append(got, r.Long())
		}
		if want := []int64{1, 2, 3}; !slices.Equal(got, want) {
			s.Errorf("copies of %v, want %v", got, want)
		}
	})
}

// A lock that lapses costs the message one of its deliveries, so the run reports it.
func TestWhatCannotBeReleasedIsAnError(t *testing.T) {
	play(t, func(s *scene) {
		s.dead(2)
		err := take(s.Context(), s.links(), orders, map[int64]bool{1: true}, chunk, 5*time.Minute, func(context.Context, []*taken) error {
			time.Sleep(2 * time.Minute)
			return nil
		})
		if link.Condition(err) != link.ConditionLockLost {
			s.Errorf("take = %v, want that a lock was lost", err)
		}
	})
}

func TestWhoIsStoppedDoesNotGoOnAtTheEndOfTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace(1)
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
		defer stop()
		began := time.Now()
		if err := p.wait(ctx, 60); err != nil || time.Since(began) != 0 {
			t.Errorf("the first wait = %v after %v, want nil at once", err, time.Since(began))
		}
		if err := p.wait(ctx, 1); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 5*time.Second {
			t.Errorf("the second wait = %v after %v, want that it was stopped after 5s", err, time.Since(began))
		}
		if err := newPace(0).wait(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a wait without a rate, once stopped = %v, want that it was stopped", err)
		}
	})
}
