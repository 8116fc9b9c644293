// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// learnThatLettersStay has a few deadlines missed, whose dead letters stay.
func (s *scene) learnThatLettersStay() {
	s.Helper()
	for range 3 {
		s.sendLives(workQueue, []time.Duration{time.Second})
		time.Sleep(500 * time.Millisecond)
	}
	time.Sleep(2 * time.Second)
	if n := len(s.Hook.Events()); n != 3 {
		s.Fatalf("notified of %d messages, want 3", n)
	}
}

// Many deadlines are missed, and dead letters stay. Consumers hold some messages and settle them
// about their deadlines. The dead letter decides, so none of these is notified of.
func TestWhereLettersStayTheLetterDecides(t *testing.T) {
	play(t, func(s *scene) {
		s.slots = true
		s.MeasureClock()
		s.startMonitor()
		s.learnThatLettersStay()
		const n, held = 2000, 200
		s.sendLives(workQueue, s.shuffled(n, 4*time.Second, time.Millisecond))
		r, err := s.Client.NewReceiverForQueue(workQueue, nil)
		s.Must(err)
		var messages []*azservicebus.ReceivedMessage
		for len(messages) < held {
			ms, err := r.ReceiveMessages(s.Context(), held-len(messages), nil)
			s.Must(err)
			messages = append(messages, ms...)
		}
		due := func(m *azservicebus.ReceivedMessage) time.Time { return m.EnqueuedTime.Add(*m.TimeToLive) }
		slices.SortFunc(messages, func(a, b *azservicebus.ReceivedMessage) int { return due(a).Compare(due(b)) })
		settled := map[string]bool{}
		for i, m := range messages {
			time.Sleep(time.Until(due(m).Add(time.Duration(i%11-5) * time.Millisecond)))
			if r.CompleteMessage(s.Context(), m, nil) == nil {
				settled[m.MessageID] = true
			}
		}
		time.Sleep(20 * time.Second)
		if len(settled) != held {
			s.Fatalf("%d messages were settled, want %d", len(settled), held)
		}
		for _, id := range s.Hook.Subjects() {
			if settled[id] {
				s.Errorf("%s was settled, and notified of", id)
			}
		}
		if events := len(s.Hook.Events()); events != n-held+3 {
			s.Errorf("%d events, want %d", events, n-held+3)
		}
		s.wantDeadLetters(n - held + 3)
	})
}

func (s *scene) wantDeadLetters(n int) {
	s.Helper()
	if dead := len(s.Dead(workQueue)); dead != n {
		s.Errorf("%d dead letters, want %d", dead, n)
	}
}

// Somebody takes each dead letter half a second after it came. That is no sign that letters stay: a
// deadline that was missed is notified of, or unknown, and none counts as met.
func TestASlowDrainerMakesNoDeadlineMet(t *testing.T) {
	play(t, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		ctx, cancel := context.WithCancel(s.Context())
		r, err := s.Client.NewReceiverForQueue(workQueue, &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
		s.Must(err)
		ended := make(chan struct{})
		defer func() { cancel(); <-ended }()
		go func() {
			defer close(ended)
			for ctx.Err() == nil {
				ms, _ := r.ReceiveMessages(ctx, 10, nil) // an error: ctx has ended
				time.Sleep(500 * time.Millisecond)
				for _, m := range ms {
					_ = r.CompleteMessage(ctx, m, nil)
				}
			}
		}()
		const n = 60
		for range n {
			s.sendLives(workQueue, []time.Duration{2 * time.Second})
			time.Sleep(150 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		s.wantAllAccountedFor(n)
		if met := s.Verdicts(workQueue, "met"); met != 0 {
			s.Errorf("%v deadlines count as met, want none", met)
		}
	})
}
