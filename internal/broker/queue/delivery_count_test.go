// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestWhatCountsAsADelivery has one case per event. It receives a message once, causes the event,
// and compares the delivery count that a peek and the next receive show.
func TestWhatCountsAsADelivery(t *testing.T) {
	for name, test := range map[string]struct {
		event func(t *testing.T, q *Queue, c *Consumer, d Delivery)
		peek  int
	}{
		"received and locked": {func(*testing.T, *Queue, *Consumer, Delivery) {}, 0},
		"abandoned":           {func(t *testing.T, q *Queue, _ *Consumer, d Delivery) { must(t, q.Abandon(d.LockToken)) }, 1},
		"released":            {func(t *testing.T, q *Queue, _ *Consumer, d Delivery) { must(t, q.Release(d.LockToken)) }, 0},
		"lock about to lapse": {func(*testing.T, *Queue, *Consumer, Delivery) { time.Sleep(time.Minute - 1) }, 0},
		"lock lapsed":         {func(*testing.T, *Queue, *Consumer, Delivery) { time.Sleep(time.Minute) }, 1},
		"lock renewed": {func(t *testing.T, q *Queue, _ *Consumer, d Delivery) {
			time.Sleep(59 * time.Second)
			_, err := q.RenewLock(d.LockToken)
			must(t, err)
			time.Sleep(59 * time.Second)
		}, 0},
		"receiver closed": {func(_ *testing.T, _ *Queue, c *Consumer, _ Delivery) {
			c.Close()
			time.Sleep(time.Minute - 1) // the lock survives
		}, 0},
		"receiver closed and lock lapsed": {func(_ *testing.T, _ *Queue, c *Consumer, _ Delivery) {
			c.Close()
			time.Sleep(time.Minute)
		}, 1},
		"peeked": {func(_ *testing.T, q *Queue, _ *Consumer, _ Delivery) { seen(q.Peek(nil, 0, 1)) }, 0},
		// The count is that of the JavaScript SDK's live test "Abandoning a deferred message puts it back
		// to the deferred queue" and its siblings. A defer counts, receiving a deferred message does not.
		"deferred": {func(t *testing.T, q *Queue, _ *Consumer, d Delivery) { must(t, q.Defer(d.LockToken)) }, 1},
		"deferred and received": {func(t *testing.T, q *Queue, _ *Consumer, d Delivery) {
			must(t, q.Defer(d.LockToken))
			_, err := q.ReceiveDeferred(PeekLock, d.SequenceNumber)
			must(t, err)
		}, 1},
		"deferred, received and abandoned": {func(t *testing.T, q *Queue, _ *Consumer, d Delivery) {
			must(t, q.Defer(d.LockToken))
			ds, err := q.ReceiveDeferred(PeekLock, d.SequenceNumber)
			must(t, err)
			must(t, q.Abandon(ds[0].LockToken))
		}, 2},
		"deferred, received and deferred": {func(t *testing.T, q *Queue, _ *Consumer, d Delivery) {
			must(t, q.Defer(d.LockToken))
			ds, err := q.ReceiveDeferred(PeekLock, d.SequenceNumber)
			must(t, err)
			must(t, q.Defer(ds[0].LockToken))
		}, 2},
		"deferred, received and released": {func(t *testing.T, q *Queue, _ *Consumer, d Delivery) {
			must(t, q.Defer(d.LockToken))
			ds, err := q.ReceiveDeferred(PeekLock, d.SequenceNumber)
			must(t, err)
			must(t, q.Release(ds[0].LockToken))
		}, 1},
		"held and rolled back": {func(t *testing.T, q *Queue, _ *Consumer, d Delivery) {
			h, err := q.Hold(Settlement{Outcome: Abandon}, d.LockToken)
			must(t, err)
			h.Cancel()
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			alone(t, Config{LockDuration: time.Minute}, func(t *testing.T, q *Queue) {
				send(t, q, text("a"))
				c := q.NewConsumer(PeekLock)
				d := receive(c, 1)[0]
				if d.DeliveryCount != 0 {
					t.Errorf("delivery count of the first delivery = %d, want 0", d.DeliveryCount)
				}
				test.event(t, q, c, d)
				synctest.Wait()
				if got := seen(q.Peek(nil, 0, 1))[0].DeliveryCount; got != test.peek {
					t.Errorf("delivery count = %d, want %d", got, test.peek)
				}
			})
		})
	}
}

func TestNothingCountsInADeadLetterQueue(t *testing.T) {
	for name, event := range map[string]func(*testing.T, *Queue, Delivery){
		"abandoned":   func(t *testing.T, q *Queue, d Delivery) { must(t, q.Abandon(d.LockToken)) },
		"released":    func(t *testing.T, q *Queue, d Delivery) { must(t, q.Release(d.LockToken)) },
		"lock lapsed": func(*testing.T, *Queue, Delivery) { time.Sleep(time.Hour) },
		"deferred":    func(t *testing.T, q *Queue, d Delivery) { must(t, q.Defer(d.LockToken)) },
		"deferred and received": func(t *testing.T, q *Queue, d Delivery) {
			must(t, q.Defer(d.LockToken))
			_, err := q.ReceiveDeferred(PeekLock, d.SequenceNumber)
			must(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			alone(t, Config{LockDuration: time.Minute, MaxDeliveryCount: 2}, func(t *testing.T, q *Queue) {
				send(t, q, text("a"))
				c := q.NewConsumer(PeekLock)
				must(t, q.Abandon(receive(c, 1)[0].LockToken))
				must(t, q.DeadLetter(receive(c, 1)[0].LockToken, "", ""))
				dead := q.DeadLetterQueue()
				dc := dead.NewConsumer(PeekLock)
				event(t, dead, receive(dc, 1)[0])
				if got := seen(dead.Peek(nil, 0, 1))[0].DeliveryCount; got != 1 {
					t.Errorf("delivery count = %d, want 1 as when it came", got)
				}
			})
		})
	}
}
