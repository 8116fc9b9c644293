// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

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

// A receive is answered up to two seconds before the last of the messages that it expires has left
// its queue. Each deadline is notified once, when its dead letter is there. If somebody takes the
// dead letters away, nobody knows of some, and none counts as met.
func TestACleanUpThatEndsAfterItsReceive(t *testing.T) {
	for _, drained := range []bool{false, true} {
		for _, slots := range []bool{false, true} {
			t.Run(fmt.Sprintf("slots %v, drained %v", slots, drained), func(t *testing.T) {
				play(t, func(s *scene) {
					s.slots = slots
					s.MeasureClock()
					s.startMonitor()
					if drained {
						r, err := s.Client.NewReceiverForQueue(workQueue, &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter, ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
						s.Must(err)
						ctx, cancel := context.WithCancel(s.Context())
						stopped := make(chan struct{})
						go func() {
							defer close(stopped)
							for ctx.Err() == nil {
								_, _ = r.ReceiveMessages(ctx, 10, nil) // until it is stopped
							}
						}()
						defer func() { cancel(); <-stopped }()
					}
					const n = 30
					var want []string
					for i := range n {
						want = append(want, fmt.Sprint("m-", i))
					}
					s.sendMany("m", n, func(i int) time.Duration { return 3*time.Second + time.Duration(i%3)*time.Second })
					time.Sleep(time.Minute)
					if !drained {
						subjects := s.Hook.Subjects()
						if slices.Sort(subjects); !slices.Equal(subjects, slices.Sorted(slices.Values(want))) {
							s.Errorf("notified of %v, want %v", subjects, want)
						}
						for _, e := range s.Hook.Events() {
							if late := e.Data.DeadLetteredTime.Sub(e.Data.Deadline); e.Data.Evidence != "deadLetter" || late > 3*time.Second {
								s.Errorf("%s: %v late, shown by %s; want its dead letter within 3 s", e.Subject, late, e.Data.Evidence)
							}
						}
					}
					missed, unknown := s.Verdicts(workQueue, "missed"), s.Verdicts(workQueue, "unknown")
					if met := s.Verdicts(workQueue, "met"); met > 0 || missed+unknown != n || missed != float64(len(s.Hook.Events())) {
						s.Errorf("met %v, missed %v, unknown %v, and %d events; want %d missed or unknown", met, missed, unknown, len(s.Hook.Events()), n)
					}
					s.Settled(2 * time.Second)
				}, func(_ *scene, c *broker.Config) { c.Quirks = quirk.CleanupLate })
			})
		}
	}
}
