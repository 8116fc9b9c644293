// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/broker/queue"
)

// However long it takes to deliver, or wherever the clock jumps meanwhile.
func TestAMoverDeliversOnceWhateverTheClockDoes(t *testing.T) {
	for name, fails := range map[string]bool{"all arrive": false, "one does not": true} {
		t.Run(name, func(t *testing.T) {
			b := newTestBroker(t, Config{Queues: []QueueConfig{{Name: "q", LockDuration: time.Second, MaxDeliveryCount: 1}}})
			e := b.Default().find("q")
			if _, err := e.queue.Send(messageOf("a", 0, ""), messageOf("b", 1, ""), messageOf("c", 2, "")); err != nil {
				t.Fatal(err)
			}
			delivered := map[string]int{}
			m := newMover(e.queue, func(d *queue.Delivery) (reason, description string) {
				delivered[d.MessageID]++
				b.SetClockOffset(b.ClockOffset() + time.Hour)
				if fails && d.MessageID == "b" {
					return reasonNotForwarded, "not this one"
				}
				return "", ""
			})
			defer m.close()
			m.now(true)
			for _, id := range []string{"a", "b", "c"} {
				if delivered[id] != 1 {
					t.Errorf("%s was delivered %d times, want once", id, delivered[id])
				}
			}
			wantTransfer := 0
			if fails {
				wantTransfer = 1
			}
			if c := e.queue.Counts(); c.Active != 0 || c.DeadLetter != 0 || c.TransferDeadLetter != wantTransfer {
				t.Errorf("left behind: %d active, %d dead, %d in transfer; want 0, 0, %d", c.Active, c.DeadLetter, c.TransferDeadLetter, wantTransfer)
			}
		})
	}
}

func TestAQueueWithSessionsForwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBroker(t, Config{Queues: []QueueConfig{{Name: "to"}, {Name: "q", RequiresSession: true, ForwardTo: "to"}}})
		q, to := b.Default().find("q"), b.Default().find("to")
		for i, session := range []string{"a", "b", "a", ""} {
			m := messageOf(string(rune('0'+i)), i, session)
			m.HasSession = true
			if err := q.send(false, m); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if left, there := q.queue.Counts(), to.queue.Counts(); left.Active != 0 || there.Active != 4 {
			t.Errorf("%d messages wait where they were sent, %d where they are forwarded to; want 0 and 4", left.Active, there.Active)
		}
		if _, err := b.Default().UpdateQueue(QueueConfig{Name: "q", RequiresSession: true}); err != nil {
			t.Fatal(err)
		}
		m := messageOf("5", 5, "a")
		m.HasSession = true
		if err := q.send(false, m); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if left := q.queue.Counts(); left.Active != 1 {
			t.Errorf("%d messages wait in a queue that no longer forwards, want 1", left.Active)
		}
	})
}

// Python's test_mgmt_queue_update_success has an update accepted that makes a queue forward to
// itself.
func TestAQueueThatForwardsToItselfEndsAtTheHops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBroker(t, Config{Queues: []QueueConfig{{Name: "q"}}})
		for _, field := range []QueueConfig{{Name: "new", ForwardTo: "NEW"}, {Name: "new", ForwardDeadLetteredMessagesTo: "sb://h/new"}} {
			if _, err := b.Default().CreateQueue(field); !errors.Is(err, ErrInvalidConfig) {
				t.Errorf("CreateQueue(%+v) = %v, want ErrInvalidConfig", field, err)
			}
		}
		if _, err := b.Default().UpdateQueue(QueueConfig{Name: "q", ForwardTo: "sb://h/Q", ForwardDeadLetteredMessagesTo: "q"}); err != nil {
			t.Fatal(err)
		}
		q := b.Default().find("q")
		if err := q.send(false, messageOf("a", 0, "")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		dead := q.queue.TransferDeadLetterQueue().Peek(nil, 0, 10)
		if c := q.queue.Counts(); c.Active != 0 || len(dead) != 1 || dead[0].DeadLetterReason != reasonMaxHops || dead[0].Hops != maxHops {
			t.Errorf("counts %+v, transfer dead letters %+v; want one that was forwarded %d times", c, dead, maxHops)
		}
	})
}
