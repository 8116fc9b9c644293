// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/testing/racetest"
)

func named(id, body string) Message { return Message{MessageID: id, Body: []byte(body)} }

func TestDuplicateIsAcceptedAndDropped(t *testing.T) {
	alone(t, Config{RequiresDuplicateDetection: true}, func(t *testing.T, q *Queue) {
		send(t, q, named("x", "first"))
		c := q.NewConsumer(ReceiveAndDelete)
		wantBodies(t, "received", receive(c, 1), "first")
		time.Sleep(9 * time.Minute)
		// Known though it has been received, and known twice in one batch; an absent name is no name.
		send(t, q, named("x", "second"), named("y", "third"), named("y", "fourth"), named("X", "fifth"), text("a"), text("b"))
		wantBodies(t, "peek", seen(q.Peek(nil, 0, 10)), "third", "fifth", "a", "b")
		time.Sleep(time.Minute) // ten since the first, one since the duplicate: that does not count
		send(t, q, named("x", "sixth"), named("y", "seventh"))
		wantBodies(t, "peek when the window is over", seen(q.Peek(nil, 0, 10)), "third", "fifth", "a", "b", "sixth")
	})
}

func TestWithoutDetectionThereAreNoDuplicates(t *testing.T) {
	q, _ := setup(t, Config{})
	send(t, q, named("x", "a"), named("x", "b"))
	wantBodies(t, "peek", seen(q.Peek(nil, 0, 10)), "a", "b")
	if got := q.Counts().DuplicateHistory; got != 0 {
		t.Errorf("ids remembered = %d, want none", got)
	}
}

func TestDuplicateOfAScheduledMessageIsDropped(t *testing.T) {
	alone(t, Config{RequiresDuplicateDetection: true}, func(t *testing.T, q *Queue) {
		later := named("x", "scheduled")
		later.ScheduledEnqueueTime = time.Now().Add(5 * time.Minute)
		seqs, err := q.Schedule(later, named("y", "y"))
		must(t, err)
		again, err := q.Schedule(later)
		must(t, err)
		send(t, q, named("x", "at once"))
		wantBodies(t, "peek", seen(q.Peek(nil, 0, 10)), "scheduled", "y")
		if err := q.CancelScheduled(again...); !errors.Is(err, ErrMessageNotFound) {
			t.Errorf("CancelScheduled of a duplicate = %v, want ErrMessageNotFound", err)
		}
		must(t, q.CancelScheduled(seqs[0]))
		send(t, q, named("x", "after it was cancelled"))
		wantBodies(t, "peek: what was cancelled was sent", seen(q.Peek(nil, 0, 10)), "y")
	})
}

func TestAMessageThatIsRefusedIsNotRemembered(t *testing.T) {
	one := named("x", "a")
	cost := one.size() + historyCost("x")
	q, _ := setup(t, Config{RequiresDuplicateDetection: true, Shared: NewQuota(2*cost + 1)})
	send(t, q, one)
	if _, err := q.Send(named("y", "b"), named("z", "c")); !errors.Is(err, ErrFull) {
		t.Fatalf("Send of two with room for one = %v, want ErrFull", err)
	}
	send(t, q, named("y", "b"))
	send(t, q, named("x", "c"), named("y", "d")) // duplicates need no room
	wantBodies(t, "peek", seen(q.Peek(nil, 0, 10)), "a", "b")
	if got := q.Counts(); got.DuplicateHistory != 2 || q.quota.Used() != 2*cost {
		t.Errorf("Counts = %+v with %d bytes taken, want 2 ids and %d", got, q.quota.Used(), 2*cost)
	}
}

func TestHistoryIsForgottenWhenItsTimeIsOver(t *testing.T) {
	const n = 5000
	window := 20 * time.Second
	alone(t, Config{RequiresDuplicateDetection: true, DuplicateDetectionHistoryTimeWindow: window},
		func(t *testing.T, q *Queue) {
			c := q.NewConsumer(ReceiveAndDelete)
			c.AddCredit(3 * n)
			for i := range 3 * n {
				send(t, q, named(fmt.Sprint(i), ""))
				c.Take(nil)
				if i%n == n-1 {
					time.Sleep(window / 2)
				}
			}
			// The last third was sent half a window ago, the second a whole one.
			if got := q.Counts().DuplicateHistory; got != n {
				t.Errorf("ids remembered = %d, want %d", got, n)
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			// Nobody has touched the queue since: the timer has.
			q.mu.Lock()
			left, used := q.intake.history, q.quota.Used()
			q.mu.Unlock()
			if left.seen != nil || left.line != nil || left.size != 0 || used != 0 {
				t.Errorf("after the window %d ids of %d bytes are left, %d bytes taken, want none",
					left.len(), left.size, used)
			}
		})
}

func TestHistorySurvivesAClockThatIsSetBack(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	q, _ := setup(t, Config{RequiresDuplicateDetection: true, Now: func() time.Time { return now }})
	send(t, q, named("a", "a"))
	now = now.Add(-time.Hour)
	send(t, q, named("b", "b"))
	now = now.Add(20 * time.Minute) // b is over, but stands behind a
	send(t, q, named("b", "b again"), named("a", "a again"))
	wantBodies(t, "peek", seen(q.Peek(nil, 0, 10)), "a", "b", "b again")
	now = now.Add(50 * time.Minute) // a is over, and with it the first b; the second b is, too
	send(t, q, named("a", "A"), named("b", "B"))
	wantBodies(t, "peek", seen(q.Peek(nil, 0, 10)), "a", "b", "b again", "A", "B")
	if got := q.Counts().DuplicateHistory; got != 2 {
		t.Errorf("ids remembered = %d, want 2", got)
	}
}

func TestDuplicatesOfAPartitionedQueueShareTheirPartitionKey(t *testing.T) {
	q, _ := setup(t, Config{RequiresDuplicateDetection: true, Partitioned: true})
	keyed := func(key, body string) Message {
		return Message{MessageID: "x", PartitionKey: key, Body: []byte(body)}
	}
	for _, m := range []Message{keyed("p", "a"), keyed("q", "b"), keyed("p", "c"), keyed("", "d")} {
		send(t, q, m)
	}
	wantBodies(t, "received", receive(q.NewConsumer(PeekLock), 10), "a", "b", "d")
}

func TestHistoryTakesNoMoreMemoryThanItCounts(t *testing.T) {
	racetest.Skip(t, "one goroutine has nothing to race with")
	const n = 200_000
	q := New(Config{RequiresDuplicateDetection: true})
	defer q.Close()
	c := q.NewConsumer(ReceiveAndDelete)
	c.AddCredit(2 * n)
	before := heapInUse()
	var ds []Delivery
	for i := range n {
		send(t, q, named(fmt.Sprintf("%036d", i), ""))
		ds, _, _ = c.Take(ds[:0])
	}
	each, counted := (heapInUse()-before)/n, q.intake.history.size/n
	t.Logf("%d bytes per id of 36, counted as %d", each, counted)
	if each > counted {
		t.Errorf("bytes per id = %d, want at most the %d that count towards the quota", each, counted)
	}
}

// An id from before a step back is remembered longer than an id from after it. Nothing of the
// latter is due while it waits behind the former: a drain would wait for it, and the timer would
// spin.
func TestClockSetBackLeavesNoHistoryDue(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	q := New(Config{RequiresDuplicateDetection: true, DuplicateDetectionHistoryTimeWindow: time.Minute, Now: func() time.Time { return now }})
	defer q.Close()
	send(t, q, named("x", "a"))
	now = now.Add(-30 * time.Second)
	send(t, q, named("y", "b"))
	now = now.Add(75 * time.Second) // y's minute is over, x's is not
	c := q.NewConsumer(PeekLock)
	c.AddCredit(5)
	c.Drain()
	if ds, drained, _ := c.Take(nil); len(ds) != 2 || !drained {
		t.Errorf("Take = %d deliveries, drained %v, want 2, true", len(ds), drained)
	}
	if due := q.agenda.next(); due <= instantOf(now) {
		t.Errorf("the timer runs at %v, want after %v", due.time(), now)
	}
	now = now.Add(15 * time.Second)
	if got := q.Counts().DuplicateHistory; got != 0 {
		t.Errorf("ids remembered when the minute of all is over = %d, want none", got)
	}
}
