// SPDX-License-Identifier: Apache-2.0

package link_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/servicebus/link"
	"overdue/internal/testing/brokertest"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// playSessions is play with a queue of sessions beside orders, and its engine.
func playSessions(t *testing.T, act func(*scene, *queue.Queue)) {
	t.Helper()
	play(t, func(s *scene) {
		err := s.ns.Broker.AddQueue(broker.QueueConfig{Name: "jobs", RequiresSession: true, DeadLetteringOnMessageExpiration: true})
		if err != nil {
			s.Fatal(err)
		}
		jobs, _ := s.ns.Broker.Queue("jobs")
		act(s, jobs)
	})
}

func (s *scene) sendTo(entity, session string, ids ...string) {
	s.Helper()
	sender, err := s.ns.Client(s.T).NewSender(entity, nil)
	if err != nil {
		s.Fatal(err)
	}
	life := time.Hour
	for _, id := range ids {
		m := &azservicebus.Message{MessageID: &id, TimeToLive: &life}
		if entity == "jobs" {
			m.SessionID = &session
		}
		if err := sender.SendMessage(s.Context(), m, nil); err != nil {
			s.Fatal(err)
		}
	}
}

func TestSessionReceiverTakesOneSession(t *testing.T) {
	playSessions(t, func(s *scene, jobs *queue.Queue) {
		s.sendTo("jobs", "", "nameless")
		s.sendTo("jobs", "a", "1", "2", "3")
		for session, want := range map[string][]int64{"": {1}, "a": {2, 3, 4}} {
			r, err := s.links.BareReceiver(s.Context(), "jobs", &session)
			if err != nil {
				s.Fatal(err)
			}
			if err := r.Grant(s.Context(), 5); err != nil {
				s.Fatal(err)
			}
			for _, number := range want {
				m, err := r.Receive(s.Context(), time.Second)
				if err != nil || m == nil || m.SequenceNumber != number {
					s.Errorf("session %q: Receive = %v, %v, want number %d", session, m, err, number)
				}
			}
			if m, err := r.Receive(s.Context(), time.Second); m != nil || err != nil {
				s.Errorf("session %q: Receive = %v, %v, want nothing more", session, m, err)
			}
			r.Close(s.Context())
		}
		for _, m := range brokertest.Seen(jobs.Peek(nil, 0, 10)) {
			if m.DeliveryCount != 0 {
				s.Errorf("%s: delivery count %d after its receiver was closed, want 0", m.MessageID, m.DeliveryCount)
			}
		}
	})
}

// An attach that is refused says nothing about the connection, on which others have their
// receivers.
func TestSessionThatIsLockedIsRefusedAndNothingElseEnds(t *testing.T) {
	playSessions(t, func(s *scene, _ *queue.Queue) {
		orders := s.receiver("orders")
		defer orders.Close(s.Context())
		a := "a"
		held, err := s.links.BareReceiver(s.Context(), "jobs", &a)
		if err != nil {
			s.Fatal(err)
		}
		if _, err := s.links.BareReceiver(s.Context(), "jobs", &a); link.Condition(err) != link.ConditionSessionLocked {
			s.Errorf("a second receiver of the session = %v, want condition %s", err, link.ConditionSessionLocked)
		}
		if _, err := s.links.Receiver(s.Context(), "jobs"); link.Condition(err) != link.ConditionNotAllowed {
			s.Errorf("a receiver without a session = %v, want condition %s", err, link.ConditionNotAllowed)
		}
		s.sendTo("orders", "", "m")
		if m, err := orders.Next(s.Context()); m == nil || err != nil {
			s.Errorf("Next on another link afterwards = %v, %v, want the message", m, err)
		}
		held.Close(s.Context())
		again, err := s.links.BareReceiver(s.Context(), "jobs", &a)
		if err != nil {
			s.Fatalf("the session after it was given up: %v", err)
		}
		again.Close(s.Context())
		if n := s.ns.Net.Conns(); n != 2 { // ours, and the sender's
			s.Errorf("%d connections, want 2", n)
		}
	})
}

func TestDeferredMessagesAreTakenByNumber(t *testing.T) {
	playSessions(t, func(s *scene, jobs *queue.Queue) {
		session := "a"
		for _, q := range []struct {
			path    string
			session *string
			engine  *queue.Queue
		}{{"orders", nil, s.orders}, {"jobs", &session, jobs}} {
			s.sendTo(q.path, session, "1", "2")
			s.deferAll(q.path, q.session, 2)
			p := s.peeker(q.path)
			if q.session != nil {
				if _, _, ok, err := p.TakeDeferred(s.Context(), 1, q.session); ok || err != nil {
					s.Errorf("%s: TakeDeferred without the session's lock = %v, %v, want neither", q.path, ok, err)
				}
				r, err := s.links.BareReceiver(s.Context(), q.path, &session)
				if err != nil {
					s.Fatal(err)
				}
				defer r.Close(s.Context())
			}
			if _, _, ok, err := p.TakeDeferred(s.Context(), 99, q.session); ok || err != nil {
				s.Errorf("%s: TakeDeferred of a number that is not there = %v, %v, want neither", q.path, ok, err)
			}
			lock, _, ok, err := p.TakeDeferred(s.Context(), 1, q.session)
			if !ok || err != nil {
				s.Fatalf("%s: TakeDeferred = %v, %v", q.path, ok, err)
			}
			if _, _, ok, err := p.TakeDeferred(s.Context(), 1, q.session); ok || err != nil {
				s.Errorf("%s: TakeDeferred of one that is locked = %v, %v, want neither", q.path, ok, err)
			}
			if ok, err := p.DeadLetter(s.Context(), lock, q.session, "r", "d"); !ok || err != nil {
				s.Errorf("%s: DeadLetter = %v, %v", q.path, ok, err)
			}
			if ok, err := p.DeadLetter(s.Context(), lock, q.session, "r", "d"); ok || err != nil {
				s.Errorf("%s: DeadLetter once more = %v, %v, want neither", q.path, ok, err)
			}
			dead := brokertest.Seen(q.engine.DeadLetterQueue().Peek(nil, 0, 10))
			if len(dead) != 1 || dead[0].SequenceNumber != 1 || dead[0].DeadLetterReason != "r" || dead[0].DeadLetterErrorDescription != "d" {
				s.Errorf("%s: dead letters are %+v, want message 1 with its reason", q.path, dead)
			}
			if page, err := p.Peek(s.Context(), 0, 10); err != nil || len(page) != 1 || page[0].State != link.Deferred || page[0].SessionID != fmt.Sprint(map[bool]string{true: "a"}[q.session != nil]) {
				s.Errorf("%s: Peek afterwards = %+v, %v, want the other deferred message", q.path, page, err)
			}
		}
	})
}

// deferAll receives the n messages of a queue, or of its session, and sets them aside.
func (s *scene) deferAll(entity string, session *string, n int) {
	s.Helper()
	client := s.ns.Client(s.T)
	var r interface {
		ReceiveMessages(context.Context, int, *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
		DeferMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.DeferMessageOptions) error
		Close(context.Context) error
	}
	var err error
	if session != nil {
		r, err = client.AcceptSessionForQueue(s.Context(), entity, *session, nil)
	} else {
		r, err = client.NewReceiverForQueue(entity, nil)
	}
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = r.Close(s.Context()) }()
	for n > 0 {
		ms, err := r.ReceiveMessages(s.Context(), n, nil)
		if err != nil {
			s.Fatal(err)
		}
		for _, m := range ms {
			if err := r.DeferMessage(s.Context(), m, nil); err != nil {
				s.Fatal(err)
			}
		}
		n -= len(ms)
	}
}
