// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/testing/racetest"
)

func inSession(id, body string) Message {
	return Message{Body: []byte(body), SessionID: id, HasSession: true}
}

func accept(t *testing.T, q *Queue, id string) *Session {
	t.Helper()
	h, err := q.Sessions().Accept(id)
	if err != nil {
		t.Fatalf("Accept(%q): %v", id, err)
	}
	return h
}

// sessionQueue makes a session queue on fake time.
func sessionQueue(t *testing.T, cfg Config, test func(*testing.T, *Queue)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cfg.RequiresSession = true
		q := New(cfg)
		defer q.Close()
		test(t, q)
	})
}

func TestNextSessionGoesRoundFromTheOneThatHasWaitedLongest(t *testing.T) {
	sessionQueue(t, Config{}, func(t *testing.T, q *Queue) {
		for _, id := range []string{"b", "a", "c"} {
			send(t, q, inSession(id, "1"), inSession(id, "2"))
		}
		var got []string
		for range 6 {
			h, err := q.Sessions().Next(nil)
			if err != nil {
				t.Fatalf("Next: %v", err)
			}
			got = append(got, h.ID())
			h.Close()
		}
		if want := []string{"b", "a", "c", "b", "a", "c"}; !slices.Equal(got, want) {
			t.Errorf("sessions = %q, want %q", got, want)
		}
	})
}

func TestThoseWhoWaitForASessionAreServedInOrder(t *testing.T) {
	sessionQueue(t, Config{}, func(t *testing.T, q *Queue) {
		got := make(chan string)
		for i := range 3 {
			go func() {
				h, err := q.Sessions().Next(nil)
				if err != nil {
					got <- err.Error()
					return
				}
				got <- fmt.Sprint(i, h.ID())
			}()
			synctest.Wait()
		}
		for i, id := range []string{"x", "y", "z"} {
			send(t, q, inSession(id, ""))
			if got, want := <-got, fmt.Sprint(i, id); got != want {
				t.Errorf("served %q, want %q", got, want)
			}
		}
	})
}

func TestWhoGivesUpWaitingTakesNoSession(t *testing.T) {
	sessionQueue(t, Config{}, func(t *testing.T, q *Queue) {
		cancel, done := make(chan struct{}), make(chan error)
		go func() {
			_, err := q.Sessions().Next(cancel)
			done <- err
		}()
		synctest.Wait()
		close(cancel)
		if err := <-done; !errors.Is(err, ErrCanceled) {
			t.Fatalf("Next = %v, want ErrCanceled", err)
		}
		send(t, q, inSession("a", ""))
		if _, err := q.Sessions().Next(cancel); !errors.Is(err, ErrCanceled) {
			t.Fatalf("Next, given up before it began, = %v, want ErrCanceled", err)
		}
		accept(t, q, "a") // nobody has it
	})
}

func TestASessionGivenToWhoGivesUpIsGivenBack(t *testing.T) {
	sessionQueue(t, Config{}, func(t *testing.T, q *Queue) {
		w, err := q.sessions.await()
		if err != nil {
			t.Fatalf("await: %v", err)
		}
		send(t, q, inSession("a", ""))
		if _, err := q.Sessions().Accept("a"); !errors.Is(err, ErrSessionLocked) {
			t.Fatalf("Accept while the one who waits has it = %v, want ErrSessionLocked", err)
		}
		q.sessions.forgo(w)
		accept(t, q, "a")
	})
}

func TestClosingTheQueueWakesWhoWaitsAndWhoHoldsASession(t *testing.T) {
	sessionQueue(t, Config{}, func(t *testing.T, q *Queue) {
		h := accept(t, q, "a")
		c := h.NewConsumer(PeekLock)
		done := make(chan error)
		go func() {
			_, err := q.Sessions().Next(nil)
			done <- err
		}()
		synctest.Wait()
		q.Close()
		if err := <-done; !errors.Is(err, ErrClosed) {
			t.Errorf("Next = %v, want ErrClosed", err)
		}
		h.awaitLost()
		if _, ok := <-c.Ready(); ok {
			t.Error("the consumer of the session is open after the queue was closed")
		}
		h.Close()
		c.Close()
		if _, err := q.Sessions().Accept("a"); !errors.Is(err, ErrClosed) {
			t.Errorf("Accept = %v, want ErrClosed", err)
		}
	})
}

func TestASessionLockThatLapsesEndsItsHolderAndCountsDeliveries(t *testing.T) {
	sessionQueue(t, Config{LockDuration: time.Minute}, func(t *testing.T, q *Queue) {
		send(t, q, inSession("a", "taken"), inSession("a", "in the outbox"), inSession("a", "waiting"))
		h := accept(t, q, "a")
		c := h.NewConsumer(PeekLock)
		d := receive(c, 1)[0]
		c.AddCredit(1)
		time.Sleep(time.Minute)
		h.awaitLost()
		if _, err := h.Renew(); !errors.Is(err, ErrSessionLockLost) {
			t.Errorf("Renew = %v, want ErrSessionLockLost", err)
		}
		if err := q.Complete(d.LockToken); !errors.Is(err, ErrLockLost) {
			t.Errorf("Complete = %v, want ErrLockLost", err)
		}
		var counts []int
		for _, v := range seen(q.Sessions().Peek(nil, "a", 0, 9)) {
			counts = append(counts, v.DeliveryCount)
		}
		if want := []int{1, 0, 0}; !slices.Equal(counts, want) {
			t.Errorf("delivery counts = %d, want %d", counts, want)
		}
		if c := h.NewConsumer(PeekLock); len(receive(c, 1)) != 0 {
			t.Error("a consumer made after the lock was lost receives")
		}
	})
}

func TestASessionLockHoldsALittleBeyondItsEnd(t *testing.T) {
	sessionQueue(t, Config{LockDuration: time.Minute}, func(t *testing.T, q *Queue) {
		send(t, q, inSession("a", ""))
		h := accept(t, q, "a")
		token := receive(h.NewConsumer(PeekLock), 1)[0].LockToken
		time.Sleep(time.Minute + sessionGrace - time.Millisecond)
		if err := q.Complete(token); err != nil {
			t.Errorf("Complete within the grace period: %v", err)
		}
		time.Sleep(time.Millisecond)
		if _, err := h.Renew(); !errors.Is(err, ErrSessionLockLost) {
			t.Errorf("Renew behind it = %v, want ErrSessionLockLost", err)
		}
	})
}

func TestRenewingASessionKeepsItsMessagesLocked(t *testing.T) {
	sessionQueue(t, Config{LockDuration: time.Minute}, func(t *testing.T, q *Queue) {
		send(t, q, inSession("a", ""))
		h := accept(t, q, "a")
		d := receive(h.NewConsumer(PeekLock), 1)[0]
		if !d.LockedUntil.Equal(h.LockedUntil()) {
			t.Errorf("message locked until %v, want %v like the session", d.LockedUntil, h.LockedUntil())
		}
		for range 5 {
			time.Sleep(50 * time.Second)
			if _, err := h.Renew(); err != nil {
				t.Fatalf("Renew: %v", err)
			}
		}
		if err := q.Complete(d.LockToken); err != nil {
			t.Errorf("Complete: %v", err)
		}
	})
}

func TestASessionOfDeferredMessagesAloneIsNeitherOfferedNorListed(t *testing.T) {
	sessionQueue(t, Config{}, func(t *testing.T, q *Queue) {
		send(t, q, inSession("a", ""))
		h := accept(t, q, "a")
		if err := q.Defer(receive(h.NewConsumer(PeekLock), 1)[0].LockToken); err != nil {
			t.Fatalf("Defer: %v", err)
		}
		h.Close()
		cancel, done := make(chan struct{}), make(chan error)
		go func() {
			_, err := q.Sessions().Next(cancel)
			done <- err
		}()
		synctest.Wait()
		close(cancel)
		if err := <-done; !errors.Is(err, ErrCanceled) {
			t.Errorf("Next = %v, want it to wait", err)
		}
		if got := q.Sessions().List(time.Time{}, 0, 9); len(got) != 0 {
			t.Errorf("Sessions = %q, want none", got)
		}
		if _, err := q.ReceiveDeferred(PeekLock, 1); !errors.Is(err, ErrSessionLockLost) {
			t.Errorf("ReceiveDeferred without the lock of the session = %v, want ErrSessionLockLost", err)
		}
		for _, receive := range []func(Mode, ...int64) ([]Delivery, error){
			q.ReceiveDeferred,
			func(m Mode, seqs ...int64) ([]Delivery, error) { return q.Sessions().ReceiveDeferred(m, "a", seqs...) },
		} {
			h = accept(t, q, "a")
			if ds, err := receive(PeekLock, 1); err != nil || len(ds) != 1 {
				t.Errorf("receiving by number = %d messages, %v, want 1", len(ds), err)
			}
			h.Close()
		}
	})
}

func TestWhatATransactionHoldsOutlivesTheSessionLock(t *testing.T) {
	sessionQueue(t, Config{LockDuration: time.Minute}, func(t *testing.T, q *Queue) {
		send(t, q, inSession("a", "1"), inSession("a", "2"), inSession("a", "3"))
		h := accept(t, q, "a")
		ds := receive(h.NewConsumer(PeekLock), 3)
		var held []*Held
		for _, d := range ds {
			part, err := q.Hold(Settlement{Outcome: Complete}, d.LockToken)
			if err != nil {
				t.Fatalf("Hold: %v", err)
			}
			held = append(held, part)
		}
		held[2].Cancel() // under the lock still
		time.Sleep(time.Minute)
		h.awaitLost()
		if err := held[0].Settle(); err != nil {
			t.Errorf("Settle after the lock lapsed: %v", err)
		}
		held[1].Cancel()
		next := accept(t, q, "a")
		got := receive(next.NewConsumer(PeekLock), 3)
		if want := []string{"2", "3"}; !slices.Equal(bodies(got), want) {
			t.Fatalf("received %q, want %q", bodies(got), want)
		}
		for _, d := range got {
			if d.DeliveryCount != 1 {
				t.Errorf("delivery count of %q = %d, want 1", d.text(), d.DeliveryCount)
			}
		}
	})
}

func TestDeleteBatchDeletesFromOneSessionOrFromAll(t *testing.T) {
	sessionQueue(t, Config{}, func(t *testing.T, q *Queue) {
		send(t, q, inSession("a", "1"), inSession("b", "2"), inSession("a", "3"), inSession("b", "4"))
		a, none := "a", "none"
		for _, step := range []struct {
			session *string
			limit   int
			want    int
		}{{&none, 9, 0}, {&a, 1, 1}, {nil, 2, 2}, {&a, 9, 0}, {nil, 9, 1}} {
			if n, err := q.DeleteBatch(step.limit, time.Now(), step.session); err != nil || n != step.want {
				t.Errorf("DeleteBatch(%d) = %d, %v, want %d", step.limit, n, err, step.want)
			}
		}
		if n := len(q.sessions.byID); n != 0 {
			t.Errorf("%d sessions are left, want none", n)
		}
	})
}

func TestASessionQueueRefusesWhatNeedsASession(t *testing.T) {
	sessionQueue(t, Config{}, func(t *testing.T, q *Queue) {
		if _, ok := <-q.NewConsumer(PeekLock).Ready(); ok {
			t.Error("a consumer without a session is open")
		}
		if _, err := q.Reserve(false, text("")); !errors.Is(err, ErrSessionRequired) {
			t.Errorf("Reserve = %v, want ErrSessionRequired", err)
		}
		dead := q.DeadLetterQueue()
		if _, err := dead.Sessions().Accept("a"); !errors.Is(err, ErrNotSessionful) {
			t.Errorf("Accept on the dead-letter queue = %v, want ErrNotSessionful", err)
		}
		send(t, q, inSession("a", ""))
		h := accept(t, q, "a")
		if err := q.DeadLetter(receive(h.NewConsumer(PeekLock), 1)[0].LockToken, "", ""); err != nil {
			t.Fatalf("DeadLetter: %v", err)
		}
		if ds := receive(dead.NewConsumer(PeekLock), 1); len(ds) != 1 || ds[0].SessionID != "a" {
			t.Errorf("received from the dead-letter queue = %+v, want the message of session a", ds)
		}
	})
}

func TestAMessageThatATopicPassesOnWithoutASessionIsDeadLettered(t *testing.T) {
	sessionQueue(t, Config{}, func(t *testing.T, q *Queue) {
		if err := q.Pass(text("1"), inSession("", "2")); err != nil {
			t.Fatalf("Pass: %v", err)
		}
		dead := seen(q.DeadLetterQueue().Peek(nil, 0, 9))
		if len(dead) != 1 || dead[0].text() != "1" || dead[0].DeadLetterReason != "Session id is null." {
			t.Errorf("dead-letter queue = %+v, want the message without a session", dead)
		}
		if left := seen(q.Peek(nil, 0, 9)); len(left) != 1 || left[0].text() != "2" {
			t.Errorf("queue = %+v, want the message of session \"\"", left)
		}
		if n := len(q.sessions.byID); n != 1 {
			t.Errorf("%d sessions, want 1", n)
		}
	})
}

func TestAQueueWithoutSessionsHasNone(t *testing.T) {
	q := New(Config{})
	defer q.Close()
	_, nextErr := q.Sessions().Next(nil)
	_, acceptErr := q.Sessions().Accept("a")
	_, renewErr := q.Sessions().RenewLock("a")
	_, stateErr := q.Sessions().State("a")
	_, deferredErr := q.Sessions().ReceiveDeferred(PeekLock, "a", 1)
	for i, err := range []error{nextErr, acceptErr, renewErr, stateErr, deferredErr, q.Sessions().SetState("a", nil)} {
		if !errors.Is(err, ErrNotSessionful) {
			t.Errorf("operation %d = %v, want ErrNotSessionful", i, err)
		}
	}
	if got := q.Sessions().List(time.Time{}, 0, 9); got != nil {
		t.Errorf("Sessions = %q, want none", got)
	}
	if got := seen(q.Sessions().Peek(nil, "", 0, 9)); got != nil {
		t.Errorf("Sessions.Peek = %v, want nothing", got)
	}
}

func TestSessionsThatHaveNothingLeftCostNothing(t *testing.T) {
	racetest.Skip(t, "one goroutine has nothing to race with")
	const n = 100_000
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	before := heapInUse()
	q := New(Config{RequiresSession: true, Now: func() time.Time { return now }})
	for i := range n {
		send(t, q, inSession(fmt.Sprint("session-", i), ""))
	}
	t.Logf("%d bytes per session of one empty message", (heapInUse()-before)/n)
	for range n {
		h, err := q.Sessions().Next(nil)
		if err != nil {
			t.Fatalf("Next: %v", err)
		}
		if err := q.Complete(receive(h.NewConsumer(PeekLock), 1)[0].LockToken); err != nil {
			t.Fatalf("Complete: %v", err)
		}
		h.Close()
	}
	if left := heapInUse() - before; left > 300_000 {
		t.Errorf("an empty queue holds %d bytes after a peak of %d sessions, want at most 300000", left, n)
	}
	q.Close()
}
