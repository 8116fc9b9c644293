// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"strings"
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
)

func dropping(_ *scene, c *broker.Config) { c.Queues[0].DeadLetteringOnMessageExpiration = false }

// The queue drops what expires. A deadline before the time to live is kept by hand, into the
// dead-letter queue.
func TestQueueThatDropsKeepsDeadlinesByHand(t *testing.T) {
	inModes(t, dropping, func(s *scene) {
		s.stamp = false // as the proxy does for such a queue
		s.MeasureClock()
		s.startMonitor()
		s.send(workQueue, "deferred", ttl(time.Hour), "Overdue-Within", `"3s"`)
		s.defers(workQueue)
		s.send(workQueue, "a", "", "Overdue-Within", `"3s"`)
		s.send(workQueue, "b", ttl(time.Hour), "Overdue-Within", `"3s"`)
		time.Sleep(6 * time.Second)
		s.wantDead(workQueue, "DeadlineExceeded", 3*time.Second, time.Second, "deferred", "a", "b")
		s.wantNotified("a", "b", "deferred")
		s.Settled(time.Second)
	})
}

// A time to live that is over cannot be kept there. The monitor is not the one who has the
// message dropped, and does not say that it was received when somebody else is.
func TestQueueThatDropsIsLeftAlone(t *testing.T) {
	inModes(t, dropping, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		s.send(workQueue, "m", ttl(3*time.Second))
		number := s.defers(workQueue)
		s.send(workQueue, "n", ttl(3*time.Second))
		time.Sleep(10 * time.Minute)
		s.wantNotified()
		left := s.Waiting(workQueue)
		if len(left) == 0 || left[0].SequenceNumber != number {
			s.Errorf("%d messages are left, want the deferred one among them", len(left))
		}
		r, err := s.Client.NewReceiverForQueue(workQueue, nil)
		if err != nil {
			s.Fatal(err)
		}
		if _, err := r.ReceiveDeferredMessages(s.Context(), []int64{number}, nil); err == nil {
			s.Error("the expired message could be received by its number")
		}
		receiveNothing(s, r)
		if err := r.Close(s.Context()); err != nil {
			s.Fatal(err)
		}
		time.Sleep(11 * time.Minute)
		s.wantNotified()
		if met, unknown := s.Verdicts(workQueue, "met"), s.Verdicts(workQueue, "unknown"); met+unknown != 2 || unknown == 0 {
			s.Errorf("%v met and %v unknown", met, unknown)
		} else if u := <-s.unknown; !strings.Contains(u.Why, "drops") || len(s.unknown) != int(unknown)-1 {
			s.Errorf("the first of %v unknown ones is %+v, want the reason that its queue drops", unknown, u)
		}
		s.Settled(time.Second)
	})
}

// With the strategy native it is dropped at once, and notified.
func TestQueueThatDropsByTheStrategyNative(t *testing.T) {
	inModes(t, dropping, func(s *scene) {
		s.settings.Strategy = "native"
		s.MeasureClock()
		s.startMonitor()
		s.send(workQueue, "m", ttl(3*time.Second))
		time.Sleep(6 * time.Second)
		if n := len(s.Waiting(workQueue)); n != 0 {
			s.Errorf("%d messages wait, want none", n)
		}
		switch notified := s.Hook.Events(); {
		case s.Expiry == queue.Eager: // eager: gone before anybody has checked
		case len(notified) != 1 || notified[0].Data.DeadLetterReason != "Dropped":
			s.Errorf("notified %+v, want of one that was dropped", notified)
		}
		s.Settled(time.Second)
	})
}
