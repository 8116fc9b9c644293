// SPDX-License-Identifier: Apache-2.0

package exercise

import (
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"overdue/internal/broker"
)

var sessionLockSpecs = []spec{
	{name: "a renewed lock outlives its first end", queue: sessionful, check: func(s *scene) {
		s.sessions.inSession("a", "1")
		r := s.sessions.accept("a")
		m := s.sessions.inOrder(r, "1")[0]
		for range 4 { // two lock durations altogether
			s.target.Wait(s.target.LockDuration / 2)
			before := r.LockedUntil()
			s.must(r.RenewSessionLock(s.ctx, nil))
			if !r.LockedUntil().After(before) {
				s.Fatalf("renewed until %v, was %v", r.LockedUntil(), before)
			}
		}
		s.sessions.wantLockedUntil(r)
		s.sessions.wantNoSession("while it is locked")
		s.must(r.CompleteMessage(s.ctx, m, nil))
	}},
	{name: "a lock that lapses detaches the link and counts", queue: sessionful, check: func(s *scene) {
		s.sessions.inSession("a", "received", "waiting")
		r, err := s.raw.session().NewReceiver(s.ctx, s.queue, &amqp.ReceiverOptions{
			Credit:         -1,
			SettlementMode: amqp.ReceiverSettleModeSecond.Ptr(),
			Filters:        []amqp.LinkFilter{namedSession("a")},
		})
		s.must(err)
		s.raw.take(r, "received")
		s.lapse()
		_, err = r.Receive(s.soon(), nil)
		s.wantCondition("Receive", err, condSessionLockLost)
		ms := s.sessions.inOrder(s.sessions.acceptNext("a"), "received", "waiting")
		s.wantCount("received before", ms[0], 2)
		s.wantCount("never received", ms[1], 1)
	}},
	{name: "a lock that lapsed is lost to $management too", queue: sessionful, check: func(s *scene) {
		s.sessions.inSession("a", "1")
		r := s.sessions.accept("a")
		m := s.sessions.inOrder(r, "1")[0]
		s.must(r.SetSessionState(s.ctx, []byte("x"), nil))
		s.lapse()
		of := func(more ...any) map[string]any {
			args := map[string]any{"session-id": "a"}
			for i := 0; i < len(more); i += 2 {
				args[more[i].(string)] = more[i+1]
			}
			return args
		}
		lost := string(condSessionLockLost)
		s.wantStatus(410, lost, s.queue, "renew-session-lock", of())
		s.wantStatus(410, lost, s.queue, "get-session-state", of())
		s.wantStatus(410, lost, s.queue, "set-session-state", of("session-state", []byte("y")))
		s.wantStatus(410, lost, s.queue, "update-disposition",
			of("disposition-status", "completed", "lock-tokens", []amqp.UUID{m.LockToken}))
	}},
	{name: "the client gets over a lock that lapsed", queue: sessionful, check: func(s *scene) {
		s.sessions.inSession("a", "1", "2")
		r := s.sessions.accept("a")
		s.sessions.inOrder(r, "1")
		s.lapse()
		ms := s.sessions.inOrder(r, "1", "2")
		s.wantCount("received before", ms[0], 2)
		s.must(r.CompleteMessage(s.ctx, ms[0], nil))
	}},
	{name: "closing the receiver gives everything back and counts nothing", queue: sessionful, check: func(s *scene) {
		s.sessions.inSession("a", "1", "2", "3")
		r := s.sessions.accept("a")
		ms := s.sessions.inOrder(r, "1", "2", "3")
		s.must(r.CompleteMessage(s.ctx, ms[1], nil))
		s.must(r.Close(s.ctx))
		r = s.sessions.acceptNext("a")
		for _, m := range s.sessions.inOrder(r, "1", "3") {
			s.wantCount(string(m.Body), m, 1)
		}
		s.wantStatus(410, "com.microsoft:message-lock-lost", s.queue, "update-disposition",
			map[string]any{"disposition-status": "completed", "lock-tokens": []amqp.UUID{ms[0].LockToken}})
	}},
	{name: "a connection that is cut frees its sessions and counts nothing", queue: sessionful, check: func(s *scene) {
		s.needsCut()
		s.sessions.inSession("a", "1", "2", "3")
		s.sessions.inOrder(s.sessions.accept("a"), "1", "2")
		s.target.Cut()
		s.target.Wait(time.Second) // the namespace notices in its own time
		for _, m := range s.sessions.inOrder(s.sessions.acceptFrom(s.newClient(), "a"), "1", "2", "3") {
			s.wantCount(string(m.Body), m, 1)
		}
	}},
	{name: "the same receiver goes on in order after its connection was cut", queue: sessionful, check: func(s *scene) {
		s.needsCut()
		s.sessions.inSession("a", "1", "2", "3")
		r := s.sessions.accept("a")
		s.must(r.CompleteMessage(s.ctx, s.sessions.inOrder(r, "1")[0], nil))
		s.target.Cut()
		s.target.Wait(time.Second)
		s.sessions.inOrder(r, "2", "3")
	}},
	{name: "who waits for a session and is cut off takes none", queue: sessionful, check: func(s *scene) {
		s.needsCut()
		session := s.raw.session()
		done := make(chan error)
		go func() {
			_, err := session.NewReceiver(s.ctx, s.queue, &amqp.ReceiverOptions{Filters: []amqp.LinkFilter{nextSession()}})
			done <- err
		}()
		time.Sleep(time.Second / 2)
		s.target.Cut()
		if err := <-done; err == nil {
			s.Error("accepting the next session over a connection that is cut succeeded")
		}
		s.sessions.inSession("a", "1")
		s.wantCount("to the next", s.sessions.inOrder(s.sessions.acceptNext("a"), "1")[0], 1)
	}},
	{name: "an abandoned message comes again before later ones", queue: sessionful, check: func(s *scene) {
		s.sessions.inSession("a", "1", "2")
		r := s.sessions.accept("a")
		s.must(r.AbandonMessage(s.ctx, s.sessions.inOrder(r, "1")[0], nil))
		ms := s.sessions.inOrder(r, "1", "2")
		s.wantCount("abandoned", ms[0], 2)
		s.wantCount("not abandoned", ms[1], 1)
	}},
	{name: "too many deliveries dead-letter", queue: broker.QueueConfig{RequiresSession: true, MaxDeliveryCount: 2}, check: func(s *scene) {
		s.sessions.inSession("a", "1", "2")
		r := s.sessions.accept("a")
		s.must(r.AbandonMessage(s.ctx, s.sessions.inOrder(r, "1")[0], nil))
		s.sessions.inOrder(r, "1")
		s.lapse()
		s.sessions.inOrder(r, "2")
		s.wantReason(s.one(s.deadLetters()), "1", "MaxDeliveryCountExceeded")
	}},
	{name: "a dead letter is received without a session", queue: sessionful, check: func(s *scene) {
		s.sessions.inSession("a", "1", "2")
		r := s.sessions.accept("a")
		m := s.sessions.inOrder(r, "1")[0]
		s.must(r.DeadLetterMessage(s.ctx, m, &azservicebus.DeadLetterOptions{Reason: new("why"), ErrorDescription: new("because")}))
		s.sessions.inOrder(r, "2")
		d := s.deadLetters()
		dead := s.one(d)
		s.wantReason(dead, "1", "why")
		if dead.SessionID == nil || *dead.SessionID != "a" || *dead.SequenceNumber != *m.SequenceNumber {
			s.Errorf("dead letter has session %v, number %d, want a, %d", dead.SessionID, *dead.SequenceNumber, *m.SequenceNumber)
		}
		s.must(d.CompleteMessage(s.ctx, dead, nil))
	}},
	{name: "a message settled over $management", queue: sessionful, check: func(s *scene) {
		s.sessions.inSession("a", "1", "2", "3")
		r := s.sessions.accept("a")
		ms := s.sessions.inOrder(r, "1", "2", "3")
		s.wantStatus(200, "", s.queue, "update-disposition", map[string]any{
			"session-id": "a", "disposition-status": "completed", "lock-tokens": []amqp.UUID{ms[0].LockToken, ms[1].LockToken},
		})
		s.must(r.Close(s.ctx))
		s.sessions.inOrder(s.sessions.acceptNext("a"), "3")
	}},
	{name: "what has expired is not delivered", queue: broker.QueueConfig{RequiresSession: true, DeadLetteringOnMessageExpiration: true},
		check: func(s *scene) {
			mortal := ttl
			s.send(&azservicebus.Message{Body: []byte("expires"), SessionID: new("a"), TimeToLive: &mortal})
			s.sessions.inSession("a", "stays")
			s.expire()
			s.sessions.inOrder(s.sessions.accept("a"), "stays")
			s.wantReason(s.one(s.deadLetters()), "expires", "TTLExpiredException")
		}},
	{name: "a receiver gets over the update of its queue", queue: sessionful, check: func(s *scene) {
		s.sessions.inSession("a", "1")
		r := s.sessions.accept("a")
		for n := range 2 {
			state, err := r.GetSessionState(s.ctx, nil)
			s.must(err)
			if state != nil {
				s.Errorf("state = %q, want none", state)
			}
			s.target.UpdateQueue(s.T, broker.QueueConfig{
				Name: s.queue, LockDuration: s.target.LockDuration, RequiresSession: true, MaxDeliveryCount: 3 + n,
			})
		}
		ms := s.sessions.inOrder(r, "1")
		s.wantCount("after the updates", ms[0], 1)
		s.must(r.CompleteMessage(s.ctx, ms[0], nil))
		s.must(r.Close(s.ctx))
	}},
}

// wantReason checks a dead letter.
func (s *scene) wantReason(m *azservicebus.ReceivedMessage, body, reason string) {
	s.Helper()
	if string(m.Body) != body || m.DeadLetterReason == nil || *m.DeadLetterReason != reason {
		s.Errorf("dead letter %q for %v, want %q for %s", m.Body, m.DeadLetterReason, body, reason)
	}
}
