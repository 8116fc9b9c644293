// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"testing"
	"time"

	"overdue/internal/queue"
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
			defer m.consumer.Close()
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
