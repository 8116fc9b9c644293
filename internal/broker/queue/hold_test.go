// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestHeldLockDoesNotLapseAndNobodyElseSettles(t *testing.T) {
	alone(t, Config{LockDuration: time.Minute}, func(t *testing.T, q *Queue) {
		send(t, q, text("a"), text("b"))
		c := q.NewConsumer(PeekLock)
		ds := receive(c, 2)
		h, err := q.Hold(Settlement{Outcome: Complete}, ds[0].LockToken)
		must(t, err)
		for name, err := range map[string]error{
			"Complete": q.Complete(ds[0].LockToken),
			"Abandon":  q.Abandon(ds[0].LockToken),
		} {
			if !errors.Is(err, ErrLockLost) {
				t.Errorf("%s of a held lock = %v, want ErrLockLost", name, err)
			}
		}
		if _, err := q.Hold(Settlement{Outcome: Complete}, ds[1].LockToken, ds[0].LockToken); !errors.Is(err, ErrLockLost) {
			t.Errorf("Hold of a held lock = %v, want ErrLockLost", err)
		}
		if _, err := q.RenewLock(ds[0].LockToken); err != nil {
			t.Errorf("RenewLock of a held lock = %v", err)
		}
		time.Sleep(time.Hour)
		wantBodies(t, "received an hour later", drain(t, c, 10), "b")
		must(t, h.Settle())
		wantBodies(t, "left", seen(q.Peek(nil, 0, 10)), "b")
	})
}

func TestCancelledHoldLeavesTheLockAsItWas(t *testing.T) {
	alone(t, Config{LockDuration: time.Minute}, func(t *testing.T, q *Queue) {
		send(t, q, text("a"), text("b"))
		c := q.NewConsumer(PeekLock)
		ds := receive(c, 2)
		hold := func(d Delivery) *Held {
			h, err := q.Hold(Settlement{Outcome: DeadLetter, Properties: []Property{{"k", "v"}}}, d.LockToken)
			must(t, err)
			return h
		}
		first, second := hold(ds[0]), hold(ds[1])
		time.Sleep(30 * time.Second)
		first.Cancel()
		if got := seen(q.Peek(nil, 0, 1))[0]; got.Properties != nil || got.DeliveryCount != 0 {
			t.Errorf("after Cancel: %+v, want as before", got)
		}
		must(t, q.Complete(ds[0].LockToken))
		time.Sleep(time.Minute)
		second.Cancel() // its time was over half a minute ago
		if err := q.Complete(ds[1].LockToken); !errors.Is(err, ErrLockLost) {
			t.Errorf("Complete after the lock's time = %v, want ErrLockLost", err)
		}
		if d := receive(c, 1)[0]; d.DeliveryCount != 1 {
			t.Errorf("delivery count after the lock lapsed = %d, want 1", d.DeliveryCount)
		}
	})
}

func TestHoldTakesAllOrNone(t *testing.T) {
	alone(t, Config{LockDuration: time.Minute}, func(t *testing.T, q *Queue) {
		send(t, q, text("a"))
		c := q.NewConsumer(PeekLock)
		d := receive(c, 1)[0]
		for name, want := range map[string]struct {
			s      Settlement
			tokens []LockToken
			err    error
		}{
			"unknown token":  {Settlement{}, []LockToken{d.LockToken, {1}}, ErrLockLost},
			"the same twice": {Settlement{}, []LockToken{d.LockToken, d.LockToken}, ErrLockLost},
			"too much": {Settlement{Outcome: DeadLetter, DeadLetterReason: strings.Repeat("x", MaxPropertiesSize+1)},
				[]LockToken{d.LockToken}, ErrPropertiesTooLarge},
		} {
			if _, err := q.Hold(want.s, want.tokens...); !errors.Is(err, want.err) {
				t.Errorf("%s: Hold = %v, want %v", name, err, want.err)
			}
		}
		time.Sleep(time.Minute)
		if got := receive(c, 1); len(got) != 1 || got[0].DeliveryCount != 1 {
			t.Errorf("received after the lock's time: %+v, want it once more", got)
		}
	})
}

func TestHeldSettlementsOfEveryKind(t *testing.T) {
	for name, test := range map[string]struct {
		outcome Outcome
		want    Counts
		count   int
	}{
		"complete":    {Complete, Counts{}, 0},
		"abandon":     {Abandon, Counts{Active: 1}, 1},
		"release":     {Release, Counts{Active: 1}, 0},
		"defer":       {Defer, Counts{Deferred: 1}, 1},
		"dead-letter": {DeadLetter, Counts{DeadLetter: 1}, 0},
	} {
		q, c := setup(t, Config{}, "a")
		h, err := q.Hold(Settlement{Outcome: test.outcome}, receive(c, 1)[0].LockToken)
		must(t, err)
		must(t, h.Settle())
		got := q.Counts()
		got.Size = 0
		if got != test.want {
			t.Errorf("%s: Counts = %+v, want %+v", name, got, test.want)
		}
		for _, v := range seen(q.Peek(nil, 0, 1)) {
			if v.DeliveryCount != test.count {
				t.Errorf("%s: delivery count = %d, want %d", name, v.DeliveryCount, test.count)
			}
		}
	}
}

func TestReservedMessagesHaveAPlaceAndAreNotThere(t *testing.T) {
	each := (&Message{Body: []byte("a")}).size()
	q, c := setup(t, Config{Shared: NewQuota(3 * each)})
	r, err := q.Reserve(false, text("a"), text("b"))
	must(t, err)
	if _, err := q.Reserve(false, text("c"), text("d")); !errors.Is(err, ErrFull) {
		t.Errorf("Reserve of two with room for one = %v, want ErrFull", err)
	}
	if got := q.Counts(); got != (Counts{}) {
		t.Errorf("Counts with messages reserved = %+v, want none", got)
	}
	send(t, q, text("c"))
	if _, err := q.Send(text("d")); !errors.Is(err, ErrFull) {
		t.Errorf("Send with the rest reserved = %v, want ErrFull", err)
	}
	if first, err := r.Send(); err != nil || first != 2 {
		t.Errorf("Send of what was reserved = %d, %v, want 2", first, err)
	}
	wantBodies(t, "received", receive(c, 10), "c", "a", "b")

	other, _ := setup(t, Config{Shared: NewQuota(each)})
	r, err = other.Reserve(false, text("a"))
	must(t, err)
	r.Cancel()
	send(t, other, text("b"))
}

func TestReservedDuplicateGivesItsPlaceBack(t *testing.T) {
	q, _ := setup(t, Config{RequiresDuplicateDetection: true})
	r, err := q.Reserve(false, named("x", "late"))
	must(t, err)
	send(t, q, named("x", "soon"))
	_, err = r.Send()
	must(t, err)
	wantBodies(t, "peek", seen(q.Peek(nil, 0, 10)), "soon")
	if got, want := q.quota.Used(), q.Counts().Size+q.intake.history.size; got != want {
		t.Errorf("bytes taken = %d, want %d", got, want)
	}
}

func TestHoldAndReserveEndWithTheQueue(t *testing.T) {
	u := NewQuota(0)
	q, c := setup(t, Config{Shared: u}, "a", "b")
	ds := receive(c, 2)
	settled, err := q.Hold(Settlement{Outcome: Complete}, ds[0].LockToken)
	must(t, err)
	cancelled, err := q.Hold(Settlement{Outcome: Complete}, ds[1].LockToken)
	must(t, err)
	r, err := q.Reserve(false, text("c"))
	must(t, err)
	q.Close()
	if err := settled.Settle(); !errors.Is(err, ErrClosed) {
		t.Errorf("Settle = %v, want ErrClosed", err)
	}
	cancelled.Cancel()
	if _, err := r.Send(); !errors.Is(err, ErrClosed) {
		t.Errorf("Send = %v, want ErrClosed", err)
	}
	if got := u.Used(); got != 0 {
		t.Errorf("bytes taken after Close = %d, want none", got)
	}
}

func TestHeldScheduledMessageIsNotActivated(t *testing.T) {
	alone(t, Config{}, func(t *testing.T, q *Queue) {
		later := func(s string) Message {
			return Message{Body: []byte(s), ScheduledEnqueueTime: time.Now().Add(time.Minute)}
		}
		seqs, err := q.Schedule(later("a"), later("b"), later("c"))
		must(t, err)
		if _, err := q.HoldScheduled(seqs[0], 99); !errors.Is(err, ErrMessageNotFound) {
			t.Errorf("HoldScheduled of an unknown number = %v, want ErrMessageNotFound", err)
		}
		cancel, err := q.HoldScheduled(seqs[0])
		must(t, err)
		keep, err := q.HoldScheduled(seqs[1])
		must(t, err)
		if err := q.CancelScheduled(seqs[0]); !errors.Is(err, ErrBeingCanceled) {
			t.Errorf("CancelScheduled of a held message = %v, want ErrBeingCanceled", err)
		}
		if got := q.Counts(); got.Scheduled != 3 || got.Active != 0 {
			t.Errorf("Counts = %+v, want 3 scheduled", got)
		}
		time.Sleep(time.Hour)
		c := q.NewConsumer(PeekLock)
		wantBodies(t, "activated", receive(c, 10), "c")
		must(t, cancel.Settle())
		keep.Cancel()
		ds, _, _ := c.Take(nil)
		wantBodies(t, "activated when nobody holds it any more", ds, "b")
		if got := q.Counts(); got.Scheduled != 0 || got.Active != 2 {
			t.Errorf("Counts = %+v, want 2 active", got)
		}
	})
}

func TestReservedNumbersAreGoodOnceTheMessagesAreSent(t *testing.T) {
	alone(t, Config{}, func(t *testing.T, q *Queue) {
		later := Message{Body: []byte("a"), ScheduledEnqueueTime: time.Now().Add(time.Minute)}
		r, err := q.Reserve(true, later, text("b"))
		must(t, err)
		seqs := r.Numbers()
		send(t, q, text("c"))
		if err := q.CancelScheduled(seqs[0]); !errors.Is(err, ErrMessageNotFound) {
			t.Errorf("CancelScheduled before Send = %v, want ErrMessageNotFound", err)
		}
		first, err := r.Send()
		must(t, err)
		if first != seqs[0] || len(seqs) != 2 || seen(q.Peek(nil, seqs[1], 1))[0].SequenceNumber != seqs[1] {
			t.Errorf("Send = %d, want %d and following", first, seqs)
		}
		must(t, q.CancelScheduled(seqs[0]))
		wantBodies(t, "peek", seen(q.Peek(nil, 0, 10)), "b", "c")
	})
}

func TestWhatIsHeldTogetherCanEndApart(t *testing.T) {
	alone(t, Config{LockDuration: time.Minute}, func(t *testing.T, q *Queue) {
		send(t, q, text("complete"), text("dead"), text("abandon"), text("cancel"))
		var tokens []LockToken
		c := q.NewConsumer(PeekLock)
		for _, d := range receive(c, 4) {
			tokens = append(tokens, d.LockToken)
		}
		h, err := q.Hold(Settlement{Outcome: Complete}, tokens...)
		must(t, err)
		time.Sleep(2 * time.Minute) // longer than the locks
		must(t, h.SettleEach(func(i int) *Settlement {
			return []*Settlement{{Outcome: Complete}, {Outcome: DeadLetter, DeadLetterReason: "r"}, {Outcome: Abandon}, nil}[i]
		}))
		wantBodies(t, "left", seen(q.Peek(nil, 0, 10)), "abandon", "cancel")
		wantBodies(t, "dead", seen(q.DeadLetterQueue().Peek(nil, 0, 10)), "dead")
		wantBodies(t, "received again", receive(c, 4), "abandon", "cancel")
		q.Close()
		if err := h.SettleEach(nil); !errors.Is(err, ErrClosed) {
			t.Errorf("SettleEach of a closed queue = %v, want ErrClosed", err)
		}
	})
}

func TestDeadLettersThatAreHeldStayWhereTheyAre(t *testing.T) {
	q, c := setup(t, Config{}, "a")
	must(t, q.DeadLetter(receive(c, 1)[0].LockToken, "", ""))
	dead := q.DeadLetterQueue()
	d := receive(dead.NewConsumer(PeekLock), 1)[0]
	h, err := dead.Hold(Settlement{Outcome: Complete}, d.LockToken)
	must(t, err)
	must(t, h.SettleEach(func(int) *Settlement { return &Settlement{Outcome: DeadLetter} }))
	must(t, dead.Complete(d.LockToken)) // locked as before
}
