// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
)

// Deadlines are missed faster than checks keep up, and dead letters stay. Nobody receives, so most
// of them are shown by nudges, and their events do not wait for pages of dead letters. A broker
// that expires no further than the first live message leaves most in place: they are scanned for.
func TestManyMissedDeadlinesNeedNoDeadLetters(t *testing.T) {
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
		proven := 0
		for _, e := range s.Hook.Events() {
			if e.Data.Evidence == "expired" {
				proven++
			}
			if e.Data.DeadLetteredTime.Before(e.Data.Deadline) {
				s.Errorf("%s was dead-lettered at %v, before its deadline %v", e.Subject, e.Data.DeadLetteredTime, e.Data.Deadline)
			}
		}
		if want := map[queue.Expiry]int{queue.Lazy: len(lives) / 2}[s.Expiry]; proven < want {
			s.Errorf("%d events rest on what nudges show, want %d at least", proven, want)
		}
	})
}

// A consumer comes in the middle of it, completes what it gets, and goes: nothing that it completed
// is notified, and all that expired is.
func TestAConsumerThatComesWhileManyDeadlinesAreMissed(t *testing.T) {
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

// So many deadlines are missed that no check reads dead letters. What is read behind nudges shows
// that they stay. From then on no nudge waits until what it expires was read.
func TestManyDeadLettersThatStay(t *testing.T) {
	play(t, func(s *scene) {
		s.slots = true
		s.MeasureClock()
		s.startMonitor()
		s.sendLives(workQueue, s.shuffled(4000, 4*time.Second, time.Millisecond))
		time.Sleep(6 * time.Second) // half of them are due
		defer s.Namespace.Broker.Default().Inject(broker.Fault{
			Operation: broker.OnManagement, Entity: workQueue, Request: "com.microsoft:peek-message", Delay: 500 * time.Millisecond,
		})()
		time.Sleep(20 * time.Second)
		if most := slices.Max(s.Lags(workQueue)); most > 800*time.Millisecond {
			s.Errorf("dead-lettered after up to %v, want that no nudge waits for a read of 0.5 s", most)
		}
		s.wantNotifiedOfAll(workQueue)
	})
}
