// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func take(c *Consumer) []Delivery {
	ds, _, _ := c.Take(nil)
	return ds
}

func TestCreditIsServedInOrderOfArrivalAcrossConsumers(t *testing.T) {
	q, a := setup(t, Config{})
	b := q.NewConsumer(PeekLock)
	a.AddCredit(2)
	b.AddCredit(1)
	a.AddCredit(1)
	b.AddCredit(5)
	for _, s := range []string{"1", "2", "3", "4", "5"} {
		send(t, q, text(s))
	}
	wantBodies(t, "first consumer", take(a), "1", "2", "4")
	wantBodies(t, "second consumer", take(b), "3", "5")
}

func TestDrainedComesAfterTheDeliveriesBeforeIt(t *testing.T) {
	q, c := setup(t, Config{}, "a", "b")
	c.AddCredit(5)
	c.Drain()
	ds, drained, _ := c.Take(nil)
	wantBodies(t, "taken", ds, "a", "b")
	if !drained || c.Credit() != 0 {
		t.Errorf("drained = %v with credit %d, want true with 0", drained, c.Credit())
	}
	send(t, q, text("c"))
	if ds, drained, _ := c.Take(nil); len(ds) != 0 || drained {
		t.Errorf("Take after a drain = %q, drained %v, want nothing more", bodies(ds), drained)
	}
	c.Drain() // with no credit there is nothing to receive, but an answer to give
	<-c.Ready()
	if ds, drained, _ := c.Take(nil); len(ds) != 0 || !drained {
		t.Errorf("Take after a drain without credit = %q, drained %v, want drained", bodies(ds), drained)
	}
}

func TestCreditThatMakesGoodWhatIsOwedIsNotNewCredit(t *testing.T) {
	q, c := setup(t, Config{}, "a")
	ds := receive(c, 1) // on its way to a peer
	c.AddCredit(-1)     // that takes its credit back meanwhile
	c.Drain()
	if err := q.Release(ds[0].LockToken); err != nil {
		t.Fatal(err)
	}
	c.AddCredit(1) // the delivery was not made
	if ds, drained, _ := c.Take(nil); len(ds) != 0 || !drained || c.Credit() != 0 {
		t.Errorf("Take = %q, drained %v, credit %d, want drained with nothing", bodies(ds), drained, c.Credit())
	}
}

func TestDrainOfMoreThanAnOutboxHolds(t *testing.T) {
	q, c := setup(t, Config{})
	const n = 3*outboxLimit + 7
	for range n {
		send(t, q, text("x"))
	}
	if ds := drain(t, c, 10*n); len(ds) != n {
		t.Errorf("drained %d deliveries, want %d", len(ds), n)
	}
}

func TestDrainFlushesTheExpiredFirst(t *testing.T) {
	alone(t, Config{DeadLetteringOnMessageExpiration: true}, func(t *testing.T, q *Queue) {
		send(t, q, text("live"), Message{Body: []byte("expired"), TTL: time.Second})
		time.Sleep(time.Second)
		c := q.NewConsumer(PeekLock)
		ds := drain(t, c, 1)
		wantBodies(t, "received", ds, "live")
		must(t, q.Release(ds[0].LockToken))
		wantBodies(t, "dead-letter queue", seen(q.DeadLetterQueue().Peek(nil, 0, 9)), "expired")
		wantBodies(t, "queue", seen(q.Peek(nil, 0, 9)), "live")
	})
}

func TestCreditTakenBackReturnsTheOutboxUncounted(t *testing.T) {
	q, c := setup(t, Config{}, "a", "b", "c")
	c.AddCredit(2) // a and b are assigned
	c.SetCredit(1)
	wantBodies(t, "taken with credit 1", take(c), "a")
	c.AddCredit(1)
	c.SetCredit(0)
	wantBodies(t, "taken with credit 0", take(c))
	ds := receive(q.NewConsumer(PeekLock), 2)
	wantBodies(t, "another consumer", ds, "b", "c")
	if ds[0].DeliveryCount != 0 {
		t.Errorf("delivery count of what was assigned and never taken = %d, want 0", ds[0].DeliveryCount)
	}
}

func TestCreditTakenBackAfterUseIsOwed(t *testing.T) {
	_, c := setup(t, Config{}, "a", "b", "c", "d")
	wantBodies(t, "taken", receive(c, 2), "a", "b")
	c.AddCredit(-1)
	if got := c.Credit(); got != -1 {
		t.Errorf("credit = %d, want -1", got)
	}
	wantBodies(t, "taken with a debt of one", receive(c, 2), "c")
}

func TestClosedConsumerKeepsItsLocksAndReturnsItsOutbox(t *testing.T) {
	alone(t, Config{LockDuration: time.Minute}, func(t *testing.T, q *Queue) {
		send(t, q, text("a"), text("b"), text("c"))
		c := q.NewConsumer(PeekLock)
		ds := receive(c, 2)
		c.AddCredit(1) // c is assigned, and never taken
		c.Close()
		c.Close()
		for range c.Ready() { // ends
		}
		must(t, q.Complete(ds[0].LockToken))
		other := q.NewConsumer(PeekLock)
		got := drain(t, other, 10)
		wantBodies(t, "another consumer", got, "c")
		if got[0].DeliveryCount != 0 {
			t.Errorf("delivery count of what was never taken = %d, want 0", got[0].DeliveryCount)
		}
		must(t, q.Complete(got[0].LockToken))
		time.Sleep(time.Minute)
		if err := q.Complete(ds[1].LockToken); !errors.Is(err, ErrLockLost) {
			t.Errorf("Complete after the lock lapsed = %v, want ErrLockLost", err)
		}
		got = drain(t, other, 10)
		wantBodies(t, "another consumer, later", got, "b")
		if got[0].DeliveryCount != 1 {
			t.Errorf("delivery count after the lock of a closed consumer lapsed = %d, want 1", got[0].DeliveryCount)
		}
	})
}

func TestConsumerThatNeverTakesHoldsMessagesForOneLockOnly(t *testing.T) {
	alone(t, Config{LockDuration: time.Minute, MaxDeliveryCount: 1}, func(t *testing.T, q *Queue) {
		stuck := q.NewConsumer(PeekLock)
		stuck.AddCredit(1000)
		for range 2 * outboxLimit {
			send(t, q, text("x"))
		}
		other := q.NewConsumer(PeekLock)
		if n := len(drain(t, other, 1000)); n != outboxLimit {
			t.Fatalf("beside a stuck consumer another gets %d, want %d", n, outboxLimit)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		// The other's lapsed too and, as failed deliveries, are dead-lettered; the stuck one's were never
		// made.
		if n := q.Counts(); n.Active != outboxLimit || n.DeadLetter != outboxLimit {
			t.Fatalf("Counts = %+v, want %d active and as many dead-lettered", n, outboxLimit)
		}
		if n := len(drain(t, other, 1000)); n != outboxLimit {
			t.Fatalf("after the locks lapsed another gets %d, want %d", n, outboxLimit)
		}
		// Nothing was lost to the stuck one: its credit is whole when it comes back.
		if ds := take(stuck); len(ds) != 0 {
			t.Errorf("Take of lapsed deliveries = %d, want none", len(ds))
		}
		if got := stuck.Credit(); got != 1000 {
			t.Errorf("credit = %d, want 1000", got)
		}
		send(t, q, text("y"))
		wantBodies(t, "taken later", take(stuck), "y")
	})
}

func TestReceiveAndDeleteRemovesWhatIsTaken(t *testing.T) {
	q, _ := setup(t, Config{}, "a", "b", "c")
	c := q.NewConsumer(ReceiveAndDelete)
	ds := receive(c, 1)
	wantBodies(t, "taken", ds, "a")
	if ds[0].LockToken != (LockToken{}) {
		t.Errorf("lock = %x, want none", ds[0].LockToken)
	}
	c.AddCredit(1) // b is assigned, but not taken
	if got := q.Counts().Active; got != 2 {
		t.Errorf("active = %d, want 2: what is not taken is not deleted", got)
	}
	c.Close()
	wantBodies(t, "queue", seen(q.Peek(nil, 0, 10)), "b", "c")
}
