// SPDX-License-Identifier: Apache-2.0

package exercise

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"overdue/internal/broker"
)

const (
	condSessionLocked   amqp.ErrCond = "com.microsoft:session-cannot-be-locked"
	condSessionLockLost amqp.ErrCond = "com.microsoft:session-lock-lost"
	condTimeout         amqp.ErrCond = "com.microsoft:timeout"
)

var sessionful = broker.QueueConfig{RequiresSession: true}

// inSession sends messages with these bodies to a session.
func (s sessions) inSession(id string, bodies ...string) {
	s.Helper()
	for _, b := range bodies {
		s.send(&azservicebus.Message{Body: []byte(b), SessionID: &id})
	}
}

func (s sessions) acceptFrom(c *azservicebus.Client, id string) *azservicebus.SessionReceiver {
	s.Helper()
	r, err := c.AcceptSessionForQueue(s.ctx, s.queue, id, nil)
	s.must(err)
	if got := r.SessionID(); got != id {
		s.Fatalf("accepted session %q, want %q", got, id)
	}
	return r
}

func (s sessions) accept(id string) *azservicebus.SessionReceiver {
	s.Helper()
	return s.acceptFrom(s.client, id)
}

// acceptNext accepts the next session, which is to be there at once.
func (s sessions) acceptNext(want string) *azservicebus.SessionReceiver {
	s.Helper()
	r, err := s.client.AcceptNextSessionForQueue(s.soon(), s.queue, nil)
	s.must(err)
	if got := r.SessionID(); got != want {
		s.Fatalf("accepted session %q as the next, want %q", got, want)
	}
	return r
}

// wantNoSession checks that no session is to be had.
func (s sessions) wantNoSession(what string) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, time.Second)
	defer cancel()
	r, err := s.client.AcceptNextSessionForQueue(ctx, s.queue, nil)
	if err == nil {
		s.Fatalf("%s: accepted session %q, want none", what, r.SessionID())
	}
	var e *azservicebus.Error
	if !errors.Is(err, context.DeadlineExceeded) && (!errors.As(err, &e) || e.Code != azservicebus.CodeTimeout) {
		s.Errorf("%s: accepting the next session = %v, want a timeout", what, err)
	}
}

// inOrder receives as many messages as bodies are wanted, and checks them.
func (s sessions) inOrder(r *azservicebus.SessionReceiver, want ...string) []*azservicebus.ReceivedMessage {
	s.Helper()
	var all []*azservicebus.ReceivedMessage
	for len(all) < len(want) {
		ms, err := r.ReceiveMessages(s.ctx, len(want)-len(all), &azservicebus.ReceiveMessagesOptions{TimeAfterFirstMessage: 10 * time.Second})
		s.must(err)
		all = append(all, ms...)
	}
	s.wantBodies("session "+r.SessionID(), all, want...)
	for _, m := range all {
		if m.SessionID == nil || *m.SessionID != r.SessionID() {
			s.Errorf("session of %q = %v, want %q", m.Body, m.SessionID, r.SessionID())
		}
	}
	return all
}

// clock is now of the scene for a queue that takes no messages without a session.
func (s *scene) clock() time.Time {
	s.Helper()
	plain := *s
	plain.queue = s.another(broker.QueueConfig{})
	var err error
	plain.sender, err = s.client.NewSender(plain.queue, nil)
	s.must(err)
	return plain.now()
}

// wantLockedUntil checks that the lock of a session lasts about as long as it should.
func (s sessions) wantLockedUntil(r *azservicebus.SessionReceiver) {
	s.Helper()
	const slack = 20 * time.Second
	if left := r.LockedUntil().Sub(s.clock()); left < s.target.LockDuration-slack || left > s.target.LockDuration+slack {
		s.Errorf("session is locked for %v, want about %v", left, s.target.LockDuration)
	}
}

var sessionSpecs = []spec{
	{name: "a named session gives its messages in order", queue: sessionful, check: func(s *scene) {
		s.sessions.inSession("a", "1")
		s.sessions.inSession("b", "2")
		s.sessions.inSession("a", "3", "4")
		r := s.sessions.accept("a")
		s.sessions.wantLockedUntil(r)
		for _, m := range s.sessions.inOrder(r, "1", "3", "4") {
			if m.LockedUntil == nil || m.LockToken == [16]byte{} {
				s.Errorf("message %q has no lock", m.Body)
			}
			s.must(r.CompleteMessage(s.ctx, m, nil))
		}
		s.must(r.Close(s.ctx))
		s.sessions.inOrder(s.sessions.accept("b"), "2")
	}},
	{name: "an empty name is a session", queue: sessionful, check: func(s *scene) {
		s.sessions.inSession("", "1")
		_, err := s.sender.ScheduleMessages(s.ctx, []*azservicebus.Message{{Body: []byte("2"), SessionID: new("")}}, s.clock(), nil)
		s.must(err)
		s.wantSend("without a session", s.sender.SendMessage(s.ctx, &azservicebus.Message{}, nil), amqp.ErrCondNotAllowed)
		r := s.sessions.accept("")
		for _, m := range s.sessions.inOrder(r, "1", "2") {
			s.must(r.CompleteMessage(s.ctx, m, nil))
		}
		s.must(r.Close(s.ctx))
		s.sessions.inSession("", "3")
		s.sessions.inOrder(s.sessions.acceptNext(""), "3")
	}},
	{name: "a session without messages can be accepted", queue: sessionful, check: func(s *scene) {
		r := s.sessions.accept("a")
		s.sessions.wantLockedUntil(r)
		s.sessions.inSession("a", "later")
		s.sessions.inOrder(r, "later")
	}},
	{name: "a session is locked once", queue: sessionful, check: func(s *scene) {
		s.sessions.inSession("a", "1")
		r := s.sessions.accept("a")
		for _, c := range []*azservicebus.Client{s.client, s.newClient()} {
			_, err := c.AcceptSessionForQueue(s.soon(), s.queue, "a", nil)
			s.wantCondition("accepting it again", err, condSessionLocked)
			const text = "The requested session 'a' cannot be accepted. It may be locked by another receiver."
			if err != nil && !strings.Contains(err.Error(), text) {
				s.Errorf("accepting it again = %v, want it to say %q", err, text)
			}
		}
		s.sessions.wantNoSession("while the only one is locked")
		s.must(r.Close(s.ctx))
		s.sessions.inOrder(s.sessions.acceptFrom(s.newClient(), "a"), "1")
	}},
	{name: "the next session is the one that has waited longest", queue: sessionful, check: func(s *scene) {
		s.sessions.wantNoSession("of an empty queue")
		for _, id := range []string{"b", "a", "c"} {
			s.sessions.inSession(id, "1 of "+id, "2 of "+id)
		}
		for _, id := range []string{"b", "a", "c"} {
			r := s.sessions.acceptNext(id)
			s.must(r.CompleteMessage(s.ctx, s.sessions.inOrder(r, "1 of "+id)[0], nil))
			s.must(r.Close(s.ctx))
		}
		for _, id := range []string{"b", "a", "c"} {
			s.sessions.inOrder(s.sessions.acceptNext(id), "2 of "+id)
		}
		s.sessions.wantNoSession("when all are locked")
	}},
	{name: "who waits gets the session that comes", queue: sessionful, check: func(s *scene) {
		accepted := make(chan string)
		go func() {
			r, err := s.newClient().AcceptNextSessionForQueue(s.ctx, s.queue, nil)
			if err != nil {
				accepted <- err.Error()
				return
			}
			accepted <- r.SessionID()
		}()
		time.Sleep(time.Second / 2)
		s.sessions.inSession("a", "1")
		if got := <-accepted; got != "a" {
			s.Errorf("accepted %q, want a", got)
		}
		s.sessions.wantNoSession("when it is locked")
	}},
	{name: "the client says how long it waits for a session", queue: sessionful, check: func(s *scene) {
		start := time.Now()
		_, err := s.raw.session().NewReceiver(s.ctx, s.queue, &amqp.ReceiverOptions{
			Filters:    []amqp.LinkFilter{nextSession()},
			Properties: map[string]any{"com.microsoft:timeout": uint32(700)},
		})
		s.wantCondition("accepting the next session", err, condTimeout)
		if took := time.Since(start); took < 700*time.Millisecond || took > 30*time.Second {
			s.Errorf("the wait took %v, want 700ms", took)
		}
	}},
	{name: "who gives up waiting takes no session", queue: sessionful, check: func(s *scene) {
		session := s.raw.session()
		ctx, cancel := context.WithTimeout(s.ctx, time.Second/2)
		defer cancel()
		_, err := session.NewReceiver(ctx, s.queue, &amqp.ReceiverOptions{Filters: []amqp.LinkFilter{nextSession()}})
		if !errors.Is(err, context.DeadlineExceeded) {
			s.Fatalf("accepting the next session = %v, want the end of the context", err)
		}
		s.must(session.Close(s.ctx))
		s.sessions.inSession("a", "1")
		s.wantCount("to the next", s.sessions.inOrder(s.sessions.acceptNext("a"), "1")[0], 1)
	}},
	{name: "a client that cancels its wait takes no session", queue: sessionful, check: func(s *scene) {
		ctx, cancel := context.WithCancel(s.ctx)
		time.AfterFunc(time.Second/2, cancel)
		_, err := s.newClient().AcceptNextSessionForQueue(ctx, s.queue, nil)
		if !errors.Is(err, context.Canceled) {
			s.Fatalf("accepting the next session = %v, want it canceled", err)
		}
		s.target.Wait(time.Second)
		s.sessions.inSession("a", "1")
		s.wantCount("to the next", s.sessions.inOrder(s.sessions.acceptNext("a"), "1")[0], 1)
	}},
	{name: "a receiver without a session is refused", queue: sessionful, check: func(s *scene) {
		const text = "It is not possible for an entity that requires sessions to create a non-sessionful message receiver."
		r := s.receiver()
		_, received := r.ReceiveMessages(s.soon(), 1, nil)
		_, peeked := r.PeekMessages(s.soon(), 1, nil)
		for what, err := range map[string]error{"ReceiveMessages": received, "PeekMessages": peeked} {
			s.wantCondition(what, err, amqp.ErrCondNotAllowed)
			if err != nil && !strings.Contains(err.Error(), text) {
				s.Errorf("%s = %v, want it to say %q", what, err, text)
			}
		}
	}},
	{name: "a queue without sessions gives none", check: func(s *scene) {
		_, err := s.client.AcceptSessionForQueue(s.soon(), s.queue, "a", nil)
		s.wantCondition("AcceptSessionForQueue", err, amqp.ErrCondNotAllowed)
		_, err = s.client.AcceptNextSessionForQueue(s.soon(), s.queue, nil)
		s.wantCondition("AcceptNextSessionForQueue", err, amqp.ErrCondNotAllowed)
	}},
	{name: "a message without a session is refused, with the rest of its batch", queue: sessionful, check: func(s *scene) {
		batch, err := s.sender.NewMessageBatch(s.ctx, nil)
		s.must(err)
		s.must(batch.AddMessage(&azservicebus.Message{Body: []byte("1"), SessionID: new("a")}, nil))
		s.must(batch.AddMessage(&azservicebus.Message{Body: []byte("2")}, nil))
		s.wantSend("the batch", s.sender.SendMessageBatch(s.ctx, batch, nil), amqp.ErrCondNotAllowed)
		s.wantSend("the message", s.sender.SendMessage(s.ctx, &azservicebus.Message{}, nil), amqp.ErrCondNotAllowed)
		s.sessions.wantNoSession("afterwards")
	}},
	{name: "two sessions are received side by side", queue: sessionful, check: func(s *scene) {
		a, b := s.sessions.accept("a"), s.sessions.acceptFrom(s.newClient(), "b")
		for _, body := range []string{"1", "2", "3"} {
			s.sessions.inSession("a", "a"+body)
			s.sessions.inSession("b", "b"+body)
		}
		s.sessions.inOrder(b, "b1", "b2", "b3")
		s.sessions.inOrder(a, "a1", "a2", "a3")
	}},
	{name: "receive and delete", queue: sessionful, check: func(s *scene) {
		s.sessions.inSession("a", "1", "2")
		r, err := s.client.AcceptSessionForQueue(s.ctx, s.queue, "a", &azservicebus.SessionReceiverOptions{
			ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete,
		})
		s.must(err)
		s.sessions.inOrder(r, "1", "2")
		s.must(r.Close(s.ctx))
		s.sessions.wantNoSession("afterwards")
	}},
	{name: "the messages of a subscription's sessions", check: func(s *scene) {
		topic := s.topics.topic(broker.TopicConfig{})
		s.topics.subscribe(topic, broker.SubscriptionConfig{Name: "sub", RequiresSession: true})
		s.topics.publish(topic, &azservicebus.Message{Body: []byte("1"), SessionID: new("a")}, &azservicebus.Message{Body: []byte("none")},
			&azservicebus.Message{Body: []byte("2"), SessionID: new("a")})
		r, err := s.client.AcceptNextSessionForSubscription(s.soon(), topic, "sub", nil)
		s.must(err)
		s.sessions.inOrder(r, "1", "2")
		dead := s.topics.deadIn(topic, "sub", 1)
		s.wantBodies("dead letters", dead, "none")
		if got := dead[0].DeadLetterReason; got == nil || *got != "Session id is null." {
			s.Errorf("reason = %v, want Session id is null.", got)
		}
	}},
}

// wantSend checks that a send was refused.
func (s *scene) wantSend(what string, err error, want amqp.ErrCond) {
	s.Helper()
	s.wantCondition("sending "+what, err, want)
}

// nextSession and namedSession are the filter of a session as Go writes it.
func nextSession() amqp.LinkFilter { return sessionFilter(nil) }

func namedSession(id string) amqp.LinkFilter { return sessionFilter(id) }

func sessionFilter(id any) amqp.LinkFilter {
	return amqp.NewLinkFilter("com.microsoft:session-filter", 0x137000000C, id)
}
