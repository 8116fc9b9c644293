// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// receiveNothing asks for a message and wants none.
func receiveNothing(s *scene, r *azservicebus.Receiver) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), time.Second)
	defer cancel()
	if ms, err := r.ReceiveMessages(ctx, 1, nil); !errors.Is(err, context.DeadlineExceeded) {
		s.Errorf("receive = %d messages, %v; want none", len(ms), err)
	}
}

func TestLockedAtItsDeadlineIsLeftAlone(t *testing.T) {
	inStores(t, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		s.send(workQueue, "m", ttl(2*time.Second))
		r, m := s.receive(workQueue)
		time.Sleep(30 * time.Second)
		if dead := len(s.Dead(workQueue)); dead != 0 || len(s.Hook.Events()) != 0 {
			s.Errorf("%d dead letters, %d events while a consumer holds the message, want none", dead, len(s.Hook.Events()))
		}
		if err := r.CompleteMessage(s.Context(), m, nil); err != nil {
			s.Errorf("Complete after the deadline = %v, want it to succeed", err)
		}
		s.Settled(5 * time.Second)
		if dead := len(s.Dead(workQueue)); dead != 0 || len(s.Hook.Events()) != 0 {
			s.Errorf("%d dead letters, %d events about a message that was completed, want none", dead, len(s.Hook.Events()))
		}
	})
}

func TestAbandonedAfterItsDeadlineIsExpiredAtOnce(t *testing.T) {
	inStores(t, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		s.send(workQueue, "m", ttl(2*time.Second))
		r, m := s.receive(workQueue)
		time.Sleep(20 * time.Second)
		if err := r.AbandonMessage(s.Context(), m, nil); err != nil {
			s.Fatal(err)
		}
		notifiedWithinASecond(s)
	})
}

func TestLapsedAfterItsDeadlineIsExpiredAtOnce(t *testing.T) {
	inStores(t, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		s.send(workQueue, "m", ttl(2*time.Second))
		_, m := s.receive(workQueue)
		time.Sleep(time.Until(*m.LockedUntil))
		notifiedWithinASecond(s)
	})
}

func notifiedWithinASecond(s *scene) {
	s.Helper()
	time.Sleep(time.Second)
	if dead := s.Lags(workQueue); len(dead) != 1 {
		s.Errorf("%d dead letters a second after the consumer gave the message back, want 1", len(dead))
	}
	if got := s.Hook.Subjects(); len(got) != 1 || got[0] != "m" {
		s.Errorf("notified of %v, want of m, once", got)
	}
	s.Settled(time.Second)
}

func TestCompletedInTimeIsNeverNotified(t *testing.T) {
	inStores(t, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		for range 20 {
			s.send(workQueue, "m", ttl(5*time.Second))
			r, m := s.receive(workQueue)
			if err := r.CompleteMessage(s.Context(), m, nil); err != nil {
				s.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second)
		if dead := len(s.Dead(workQueue)); dead != 0 || len(s.Hook.Events()) != 0 {
			s.Errorf("%d dead letters, %d events, want none", dead, len(s.Hook.Events()))
		}
		s.Settled(time.Second)
	})
}

func TestDeadLetteredByItsConsumerIsNotAMissedDeadline(t *testing.T) {
	play(t, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		s.send(workQueue, "m", ttl(2*time.Second))
		r, m := s.receive(workQueue)
		if err := r.DeadLetterMessage(s.Context(), m, nil); err != nil {
			s.Fatal(err)
		}
		s.Settled(10 * time.Second)
		if notified := s.Hook.Events(); len(notified) != 0 {
			s.Errorf("notified %v, want nothing: the message was received in time", notified)
		}
	})
}
