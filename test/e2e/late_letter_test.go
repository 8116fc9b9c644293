// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/broker/quirk"
)

// A dead letter can be found half a second after its message has left the work queue. The receive of a
// consumer has the broker expire the message about when the monitor checks it. Its deadline is notified
// all the same.
func TestDeadLettersThatComeLate(t *testing.T) {
	for after := time.Duration(0); after <= 2*time.Millisecond; after += 200 * time.Microsecond {
		for _, slots := range []bool{false, true} {
			t.Run(fmt.Sprintf("slots %v, received %v after the deadline", slots, after), func(t *testing.T) {
				play(t, func(s *scene) {
					s.slots = slots
					s.MeasureClock()
					s.startMonitor()
					r, err := s.Client.NewReceiverForQueue(workQueue, nil)
					s.Must(err)
					s.send(workQueue, "m-1", ttl(3*time.Second))
					time.Sleep(3*time.Second + after)
					ctx, cancel := context.WithTimeout(s.Context(), time.Second)
					defer cancel()
					if ms, err := r.ReceiveMessages(ctx, 1, nil); err == nil {
						s.Errorf("received %d messages, want none", len(ms))
					}
					s.Must(r.Close(s.Context()))
					time.Sleep(time.Minute)
					s.WantEvents("missed m-1")
					s.Settled(2 * time.Second)
				}, func(_ *scene, c *broker.Config) { c.Quirks = quirk.DeadLettersLate })
			})
		}
	}
}
