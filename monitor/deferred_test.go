// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"fmt"
	"testing"
	"time"

	"overdue/internal/broker"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

func plain(*scene, *broker.Config) {}

// The broker never expires what is deferred. With its time to live over it does so when it is
// asked for it; before that it is dead-lettered by hand.
func TestDeferredAtItsDeadline(t *testing.T) {
	for _, stamp := range []bool{true, false} {
		t.Run(fmt.Sprint("stamp ", stamp), func(t *testing.T) {
			inModes(t, plain, func(s *scene) {
				s.stamp = stamp
				s.MeasureClock()
				s.startMonitor()
				var ids []string
				for i := range 5 {
					s.send(workQueue, fmt.Sprint("m-", i), "", "Overdue-Within", `"3s"`)
					s.defers(workQueue)
					ids = append(ids, fmt.Sprint("m-", i))
				}
				time.Sleep(6 * time.Second)
				reason := "TTLExpiredException"
				if !stamp {
					reason = "DeadlineExceeded"
				}
				s.wantDead(workQueue, reason, 3*time.Second, time.Second, ids...)
				s.wantNotified(ids...)
				s.Settled(time.Second)
			})
		})
	}
}

// A consumer has it by its number at its deadline: it is left alone, and expired at once when it
// is given back.
func TestDeferredAndLockedAtItsDeadline(t *testing.T) {
	for _, complete := range []bool{true, false} {
		t.Run(fmt.Sprint("complete ", complete), func(t *testing.T) {
			inModes(t, plain, func(s *scene) {
				s.MeasureClock()
				s.startMonitor()
				s.send(workQueue, "m", ttl(3*time.Second))
				number := s.defers(workQueue)
				r, err := s.Client.NewReceiverForQueue(workQueue, nil)
				if err != nil {
					s.Fatal(err)
				}
				defer func() { _ = r.Close(s.Context()) }()
				ms, err := r.ReceiveDeferredMessages(s.Context(), []int64{number}, nil)
				if err != nil || len(ms) != 1 {
					s.Fatalf("receive by number = %d, %v", len(ms), err)
				}
				time.Sleep(30 * time.Second)
				s.wantNotified()
				if complete {
					err = r.CompleteMessage(s.Context(), ms[0], nil)
				} else {
					err = r.AbandonMessage(s.Context(), ms[0], nil)
				}
				if err != nil {
					s.Fatal(err)
				}
				time.Sleep(1500 * time.Millisecond)
				if complete {
					s.wantNotified()
				} else {
					s.wantNotified("m")
				}
				s.Settled(time.Second)
			})
		})
	}
}

// Other deferred messages there, which are not due, stay as they are.
func TestOtherDeferredMessagesAreNotDisturbed(t *testing.T) {
	inModes(t, plain, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		s.send(workQueue, "live", ttl(time.Hour))
		number := s.defers(workQueue)
		s.send(workQueue, "m", ttl(2*time.Second))
		s.defers(workQueue)
		before := s.Waiting(workQueue)[0]
		time.Sleep(10 * time.Second)
		s.wantNotified("m")
		left := s.Waiting(workQueue)
		if len(left) != 1 || left[0].SequenceNumber != number || left[0].DeliveryCount != before.DeliveryCount {
			s.Fatalf("left are %+v, want the deferred message as it was", left)
		}
		r, err := s.Client.NewReceiverForQueue(workQueue, &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
		if err != nil {
			s.Fatal(err)
		}
		if ms, err := r.ReceiveDeferredMessages(s.Context(), []int64{number}, nil); err != nil || len(ms) != 1 {
			s.Errorf("receive it by number = %d, %v", len(ms), err)
		}
	})
}
