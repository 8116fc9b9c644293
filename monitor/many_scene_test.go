// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/testing/racetest"
)

// Many deadlines are missed, and dead letters stay. A broker that expires no further than the first
// live message leaves most in place: they are scanned for.
func TestManyMissedDeadlinesBehindLiveMessages(t *testing.T) {
	racetest.Skip(t, "it needs thousands of messages; small scenes show the races")
	inModes(t, plain, func(s *scene) {
		s.slots = true
		s.MeasureClock()
		s.startMonitor()
		s.sendBatch(workQueue, 20, time.Hour) // the oldest messages stay
		lives := s.shuffled(4000, 5*time.Second, 300*time.Microsecond)
		s.sendLives(workQueue, lives)
		time.Sleep(30 * time.Second)
		all := s.Hook.Subjects()
		if n := len(slices.Compact(slices.Clone(all))); n != len(all) || n != len(lives) {
			s.Errorf("%d events for %d messages, want one for each of %d", len(all), n, len(lives))
		}
		if n := len(s.Dead(workQueue)); n != len(lives) {
			s.Errorf("%d dead letters, want %d", n, len(lives))
		}
		for _, e := range s.Hook.Events() {
			if e.Data.DeadLetteredTime.Before(e.Data.Deadline) {
				s.Errorf("%s was dead-lettered at %v, before its deadline %v", e.Subject, e.Data.DeadLetteredTime, e.Data.Deadline)
			}
		}
	})
}

// A consumer comes in the middle of it, completes what it gets, and goes: nothing that it completed
// is notified, and all that expired is.
func TestAConsumerThatComesWhileManyDeadlinesAreMissed(t *testing.T) {
	racetest.Skip(t, "it needs thousands of messages; small scenes show the races")
	play(t, func(s *scene) {
		s.slots = true
		s.MeasureClock()
		s.startMonitor()
		lives := s.shuffled(4000, 5*time.Second, 300*time.Microsecond)
		s.sendLives(workQueue, lives)
		completed := map[string]bool{}
		for _, comes := range []time.Duration{5500 * time.Millisecond, 300 * time.Millisecond} {
			time.Sleep(comes)
			r, err := s.Client.NewReceiverForQueue(workQueue, nil)
			s.Must(err)
			for range 20 {
				ctx, cancel := context.WithTimeout(s.Context(), time.Millisecond)
				ms, _ := r.ReceiveMessages(ctx, 20, nil) // an error: none is left
				cancel()
				for _, m := range ms {
					if r.CompleteMessage(s.Context(), m, nil) == nil {
						completed[m.MessageID] = true
					}
				}
			}
			s.Must(r.Close(s.Context()))
		}
		time.Sleep(30 * time.Second)
		all := s.Hook.Subjects()
		if n := len(slices.Compact(slices.Clone(all))); n != len(all) || n+len(completed) != len(lives) || len(completed) < 100 {
			s.Errorf("%d events for %d messages, and %d were completed of %d", len(all), n, len(completed), len(lives))
		}
		for _, id := range all {
			if completed[id] {
				s.Errorf("%s was completed in time, and notified", id)
			}
		}
	})
}

// Where dead letters stay, no nudge waits for a read, however long that takes.
func TestManyDeadLettersThatStay(t *testing.T) {
	racetest.Skip(t, "it needs thousands of messages; small scenes show the races")
	play(t, func(s *scene) {
		s.slots = true
		s.MeasureClock()
		s.startMonitor()
		s.sendLives(workQueue, s.shuffled(4000, 4*time.Second, time.Millisecond))
		time.Sleep(6 * time.Second) // half of them are due
		defer s.Namespace.Broker.Default().Inject(broker.Fault{
			Operation: broker.OnManagement, Entity: workQueue, Request: "com.microsoft:peek-message", Delay: 500 * time.Millisecond,
		})()
		time.Sleep(time.Minute)
		if most := slices.Max(s.Lags(workQueue)); most > 800*time.Millisecond {
			s.Errorf("dead-lettered after up to %v, want that no nudge waits for a read of 0.5 s", most)
		}
		s.wantNotifiedOfAll(workQueue)
	})
}
