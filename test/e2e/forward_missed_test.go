// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/alert"
	"overdue/internal/broker"
	"overdue/internal/servicebus/link"
	"overdue/internal/testing/hooktest"
	"overdue/internal/testing/racetest"
)

// A message that has missed its deadline is on the other queue, once and as it was, and no dead
// letter any more; its sender is notified. Foreign dead letters stay as they are.
func TestMissedMessagesAreForwardedAndReported(t *testing.T) {
	play(t, func(s *scene) {
		s.forward = func(links *link.Namespace) *alert.Forward {
			f, err := alert.NewForward(alert.ForwardConfig{
				Links: links, Log: s.Logger(),
				Handling: func(entity string) alert.Handling {
					if entity != workQueue {
						return alert.Handling{}
					}
					return alert.Handling{ForwardTo: "slow", Report: true}
				},
			})
			if err != nil {
				s.Fatal(err)
			}
			return f
		}
		s.MeasureClock()
		s.startMonitor()
		s.deadLetterByHand("foreign", 3)
		n := racetest.Sized(300, 100)
		for i := range n {
			props := fmt.Sprintf(`%s,"CorrelationId":"c-%d","Label":"order"`, ttl(time.Duration(1000+i)*time.Millisecond), i)
			if i < 2 {
				props += `,"ReplyTo":"replies"`
			}
			s.send(workQueue, fmt.Sprint("m-", i), props, "kind", `"coffee"`, "overdue-within", `"1s"`)
		}
		time.Sleep(20 * time.Second)
		if got := len(s.Hook.Events()); got != n {
			t.Errorf("events = %d, want %d", got, n)
		}
		if c := s.Queue(workQueue).Counts(); c.Active != 0 || c.DeadLetter != 3 {
			t.Errorf("on the work queue: %+v, want the three foreign dead letters alone", c)
		}
		ids := map[string]int{}
		for _, m := range s.drainQueue("slow") {
			ids[m.MessageID]++
			deadline, _ := m.ApplicationProperties["overdue-missed-deadline"].(time.Time)
			if string(m.Body) != "body of "+m.MessageID || *m.Subject != "order" || m.ApplicationProperties["Kind"] != "coffee" ||
				m.ApplicationProperties["overdue-missed-on"] != workQueue || deadline.IsZero() || m.ApplicationProperties["overdue-within"] != nil ||
				m.ApplicationProperties["DeadLetterReason"] != nil {
				t.Errorf("sent on: %s of %s with %v", m.MessageID, m.EnqueuedTime, m.ApplicationProperties)
			}
		}
		if len(ids) != n {
			t.Errorf("messages on the other queue = %d, want %d", len(ids), n)
		}
		for id, times := range ids {
			if times != 1 {
				t.Errorf("%s is there %d times", id, times)
			}
		}
		var reports []string
		for _, m := range s.drainQueue("replies") {
			var e hooktest.Event
			if err := json.Unmarshal(m.Body, &e); err != nil || *m.Subject != alert.TypeMissed {
				t.Errorf("report %s: %v", m.Body, err)
			}
			reports = append(reports, *m.CorrelationID)
		}
		slices.Sort(reports)
		if want := []string{"c-0", "c-1"}; !slices.Equal(reports, want) {
			t.Errorf("reports = %q, want %q", reports, want)
		}
	}, func(_ *scene, c *broker.Config) {
		c.Queues = append(c.Queues, broker.QueueConfig{Name: "slow"}, broker.QueueConfig{Name: "replies"})
	})
}

// deadLetterByHand leaves n dead letters of a consumer's making on the work queue.
func (s *scene) deadLetterByHand(id string, n int) {
	s.Helper()
	sender, err := s.Client.NewSender(workQueue, nil)
	if err != nil {
		s.Fatal(err)
	}
	r, err := s.Client.NewReceiverForQueue(workQueue, nil)
	if err != nil {
		s.Fatal(err)
	}
	for i := range n {
		if err := sender.SendMessage(s.Context(), &azservicebus.Message{MessageID: to.Ptr(fmt.Sprint(id, i))}, nil); err != nil {
			s.Fatal(err)
		}
		ms, err := r.ReceiveMessages(s.Context(), 1, nil)
		if err != nil {
			s.Fatal(err)
		}
		if err := r.DeadLetterMessage(s.Context(), ms[0], nil); err != nil {
			s.Fatal(err)
		}
	}
	_ = r.Close(s.Context())
	_ = sender.Close(s.Context())
}

// drainQueue receives all that there is.
func (s *scene) drainQueue(name string) (all []*azservicebus.ReceivedMessage) {
	s.Helper()
	r, err := s.Client.NewReceiverForQueue(name, &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
	if err != nil {
		s.Fatal(err)
	}
	for {
		ctx, cancel := context.WithTimeout(s.Context(), 5*time.Second)
		ms, err := r.ReceiveMessages(ctx, 500, nil)
		cancel()
		if err != nil || len(ms) == 0 {
			break
		}
		all = append(all, ms...)
	}
	_ = r.Close(s.Context())
	return all
}
