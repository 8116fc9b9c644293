// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/broker/quirk"

	"github.com/google/go-cmp/cmp"
)

func TestAPurgeTakesEveryStateAndLeavesTheConsumers(t *testing.T) {
	alone(t, Config{RequiresDuplicateDetection: true}, func(t *testing.T, q *Queue) {
		letter := func(body string) Message { return Message{Body: []byte(body), MessageID: body} }
		send(t, q, letter("taken"), letter("deferred"), letter("dead"), letter("held"))
		ds := receive(q.NewConsumer(PeekLock), 4)
		must(t, q.Defer(ds[1].LockToken))
		must(t, q.DeadLetter(ds[2].LockToken, "why", ""))
		held, err := q.Hold(Settlement{Outcome: Complete}, ds[3].LockToken)
		must(t, err)
		slow := q.NewConsumer(PeekLock)
		slow.AddCredit(2)
		send(t, q, letter("in the outbox"), letter("waiting"), letter("behind"),
			Message{Body: []byte("scheduled"), ScheduledEnqueueTime: time.Now().Add(time.Hour)})

		want := q.Counts()
		if diff := cmp.Diff(want, q.Purge()); diff != "" {
			t.Errorf("Purge: -want +got:\n%s", diff)
		}
		if diff := cmp.Diff(Counts{}, q.Counts()); diff != "" || q.quota.Used() != 0 {
			t.Errorf("after the purge %d bytes are held: -want +got:\n%s", q.quota.Used(), diff)
		}
		if err := q.Complete(ds[0].LockToken); !errors.Is(err, ErrLockLost) {
			t.Errorf("Complete of a purged message = %v, want ErrLockLost", err)
		}
		if err := held.Settle(); err != nil {
			t.Errorf("Settle of a purged message that was held = %v, want none", err)
		}
		wantBodies(t, "taken from the outbox", receive(slow, 0))
		send(t, q, letter("taken"), letter("next"), letter("third"))
		wantBodies(t, "received with the credit from before", receive(slow, 0), "taken", "next")
	})
}

func TestAPurgeLeavesSessionsLockedWithoutTheirStates(t *testing.T) {
	sessionQueue(t, Config{}, func(t *testing.T, q *Queue) {
		send(t, q, inSession("a", "1"), inSession("a", "2"), inSession("b", "3"))
		h := accept(t, q, "a")
		must(t, q.Sessions().SetState("a", []byte("state")))
		ds := receive(h.NewConsumer(PeekLock), 1)
		c := h.NewConsumer(PeekLock)
		q.Purge()
		state, err := q.Sessions().State("a")
		if err != nil || state != nil {
			t.Errorf("the state of the session = %q, %v; want none, under the same lock", state, err)
		}
		if err := q.Complete(ds[0].LockToken); !errors.Is(err, ErrLockLost) {
			t.Errorf("Complete of a purged message = %v, want ErrLockLost", err)
		}
		if ids := q.Sessions().List(time.Time{}, 0, 10); len(ids) > 0 {
			t.Errorf("sessions with something in them = %q, want none", ids)
		}
		send(t, q, inSession("a", "4"))
		wantBodies(t, "received under the lock", receive(c, 1), "4")
	})
}

// Messages that quirks keep between two places go as well.
func TestAPurgeTakesWhatIsOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Config{Quirks: quirk.CleanupLate | quirk.DeadLettersLate, DeadLetteringOnMessageExpiration: true})
		defer q.Close()
		for range 20 {
			send(t, q, Message{Body: []byte("expired"), TTL: time.Second})
		}
		time.Sleep(time.Minute)
		drain(t, q.NewConsumer(PeekLock), 1)
		q.Purge()
		time.Sleep(time.Minute)
		if n := q.Counts(); n != (Counts{}) || q.quota.Used() != 0 {
			t.Errorf("a minute after the purge: %+v, %d bytes held; want nothing", n, q.quota.Used())
		}
	})
}

// A largestStep knows how many changes a step had at most.
type largestStep struct {
	*memoryLog
	changes int
}

func (l *largestStep) Append(s *Step) {
	l.changes = max(l.changes, len(s.Changes))
	l.memoryLog.Append(s)
}

func TestAPurgeOfManyIsReportedInSteps(t *testing.T) {
	log := &largestStep{memoryLog: newMemoryLog(t)}
	q := New(Config{Log: log})
	defer q.Close()
	const n = 2*wave + 1
	for range n {
		send(t, q, text("a"))
	}
	if got := q.Purge().Active; got != n || len(log.messages) != 0 || log.changes > wave {
		t.Errorf("Purge = %d, and the log has %d left, in steps of up to %d; want %d and none, in steps of up to %d",
			got, len(log.messages), log.changes, n, wave)
	}
	if q.Close(); q.Purge() != (Counts{}) {
		t.Error("a closed queue has messages to purge")
	}
}

func TestOneMessageIsDeletedWhateverItsState(t *testing.T) {
	alone(t, Config{}, func(t *testing.T, q *Queue) {
		send(t, q, text("locked"), text("deferred"), text("dead"), text("waiting"),
			Message{Body: []byte("scheduled"), ScheduledEnqueueTime: time.Now().Add(time.Hour)})
		ds := receive(q.NewConsumer(PeekLock), 3)
		must(t, q.Defer(ds[1].LockToken))
		must(t, q.DeadLetter(ds[2].LockToken, "why", ""))
		for _, v := range seen(q.Peek(nil, 0, 10)) {
			must(t, q.Delete(v.SequenceNumber))
		}
		must(t, q.DeadLetterQueue().Delete(ds[2].SequenceNumber))
		if diff := cmp.Diff(Counts{}, q.Counts()); diff != "" || q.quota.Used() != 0 {
			t.Errorf("afterwards %d bytes are held: -want +got:\n%s", q.quota.Used(), diff)
		}
		if err := q.Complete(ds[0].LockToken); !errors.Is(err, ErrLockLost) {
			t.Errorf("Complete of a deleted message = %v, want ErrLockLost", err)
		}
		if err := q.Delete(ds[0].SequenceNumber); !errors.Is(err, ErrMessageNotFound) {
			t.Errorf("Delete of what is gone = %v, want ErrMessageNotFound", err)
		}
	})
}

func TestAPeekBackShowsTheHighestNumberFirst(t *testing.T) {
	alone(t, Config{}, func(t *testing.T, q *Queue) {
		send(t, q, text("1"), text("2"), text("3"), text("4"))
		wantBodies(t, "from 3 downwards", seen(q.PeekBack(nil, 3, 2)), "3", "2")
		wantBodies(t, "from above all downwards", seen(q.PeekBack(nil, 100, 10)), "4", "3", "2", "1")
		wantBodies(t, "below the first", seen(q.PeekBack(nil, 0, 10)))
	})
}
