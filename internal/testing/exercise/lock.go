// SPDX-License-Identifier: Apache-2.0

package exercise

import (
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/broker"
)

var countSpecs = []spec{
	{name: "the first delivery counts nothing and a peek neither", check: func(s *scene) {
		s.text("x")
		r := s.receiver()
		s.wantCount("peeked", s.peek(r)[0], 1)
		m := s.one(r)
		s.wantCount("first delivery", m, 1)
		s.wantCount("peeked while locked", s.peek(r)[0], 1)
	}},
	{name: "abandon counts", check: func(s *scene) {
		s.text("x")
		r := s.receiver()
		s.must(r.AbandonMessage(s.ctx, s.one(r), nil))
		s.wantCount("after abandon", s.one(r), 2)
	}},
	{name: "a lock that lapses counts", check: func(s *scene) {
		s.text("x")
		r := s.receiver()
		s.one(r)
		s.lapse()
		s.wantCount("after the lock lapsed", s.one(r), 2)
	}},
	{name: "released does not count", check: func(s *scene) {
		s.text("x")
		r := s.raw.link(s.raw.session(), s.queue)
		for range 3 {
			ms := s.raw.take(r, "x")
			s.must(r.ReleaseMessage(s.ctx, ms[0]))
		}
		s.wantCount("after three releases", s.one(s.receiver()), 1)
	}},
	{name: "closing the receiver does not count until the lock lapses", check: func(s *scene) {
		s.text("x")
		r := s.receiver()
		s.one(r)
		s.must(r.Close(s.ctx))
		other := s.receiver()
		s.wantCount("while locked", s.peek(other)[0], 1)
		s.lapse()
		s.wantCount("after the lock lapsed", s.one(other), 2)
	}},
	{name: "deferring counts, and receiving what was deferred does not", check: func(s *scene) {
		s.text("x")
		r := s.receiver()
		m := s.one(r)
		s.must(r.DeferMessage(s.ctx, m, nil))
		s.wantCount("deferred", s.peek(r)[0], 2)
		d := s.receiveDeferred(r, *m.SequenceNumber)[0]
		s.wantCount("received deferred", d, 2)
		s.must(r.AbandonMessage(s.ctx, d, nil))
		s.wantCount("peeked after abandon", s.peek(r)[0], 3)
		d = s.receiveDeferred(r, *m.SequenceNumber)[0]
		s.must(r.DeferMessage(s.ctx, d, nil))
		s.wantCount("peeked after another defer", s.peek(r)[0], 4)
	}},
	{name: "a defer at MaxDeliveryCount dead-letters", queue: broker.QueueConfig{MaxDeliveryCount: 1}, check: func(s *scene) {
		s.text("x")
		r := s.receiver()
		s.must(r.DeferMessage(s.ctx, s.one(r), nil))
		s.wantBodies("left", s.peek(r))
		s.wantReason(s.one(s.deadLetters()), "x", "MaxDeliveryCountExceeded")
	}},
	{name: "nothing counts in the dead-letter queue", check: func(s *scene) {
		s.text("x")
		r, d := s.receiver(), s.deadLetters()
		s.must(r.AbandonMessage(s.ctx, s.one(r), nil))
		s.must(r.DeadLetterMessage(s.ctx, s.one(r), nil))
		m := s.one(d)
		s.wantCount("dead-lettered", m, 2)
		s.must(d.AbandonMessage(s.ctx, m, &azservicebus.AbandonMessageOptions{PropertiesToModify: map[string]any{"k": "v"}}))
		m = s.one(d)
		s.wantCount("after abandon", m, 2)
		if m.ApplicationProperties["k"] != "v" {
			s.Errorf("properties = %v, want k=v", m.ApplicationProperties)
		}
		s.lapse()
		s.wantCount("after the lock lapsed", s.one(d), 2)
	}},
	{name: "too many deliveries dead-letter", queue: broker.QueueConfig{MaxDeliveryCount: 2}, check: func(s *scene) {
		s.text("x")
		r := s.receiver()
		s.must(r.AbandonMessage(s.ctx, s.one(r), nil))
		s.must(r.AbandonMessage(s.ctx, s.one(r), nil))
		s.wantBodies("left", s.peek(r))
		m := s.one(s.deadLetters())
		if m.DeadLetterReason == nil || *m.DeadLetterReason != "MaxDeliveryCountExceeded" {
			s.Errorf("reason = %v, want MaxDeliveryCountExceeded", m.DeadLetterReason)
		}
	}},
}

var lockSpecs = []spec{
	{name: "a locked message is not delivered but peeked", check: func(s *scene) {
		s.text("x")
		r := s.receiver()
		m := s.one(r)
		s.wantDeliverable("while locked")
		for _, when := range []string{"while locked", "abandoned"} { // which a peek does not tell apart
			peeked := s.peek(r)
			s.wantBodies(when, peeked, "x")
			if until := peeked[0].LockedUntil; until == nil || !until.Equal(*m.LockedUntil) || peeked[0].LockToken != [16]byte{} {
				s.Errorf("%s: peeked with a lock %x until %v, want the end alone, %v", when, peeked[0].LockToken, until, m.LockedUntil)
			}
			if when == "while locked" {
				s.must(r.AbandonMessage(s.ctx, m, nil))
			}
		}
	}},
	{name: "a message whose lock lapsed comes again before later ones", check: func(s *scene) {
		s.text("a", "b")
		r := s.receiver()
		s.one(r)
		s.lapse()
		s.wantDeliverable("after the lock lapsed", "a", "b")
	}},
	{name: "settling after the lock lapsed is a lost lock", check: func(s *scene) {
		s.text("a", "b", "c", "d")
		r := s.receiver()
		ms := s.receive(r, 4)
		s.lapse()
		s.wantCode("CompleteMessage", r.CompleteMessage(s.soon(), ms[0], nil), azservicebus.CodeLockLost)
		s.wantCode("AbandonMessage", r.AbandonMessage(s.soon(), ms[1], nil), azservicebus.CodeLockLost)
		s.wantCode("DeferMessage", r.DeferMessage(s.soon(), ms[2], nil), azservicebus.CodeLockLost)
		s.wantCode("DeadLetterMessage", r.DeadLetterMessage(s.soon(), ms[3], nil), azservicebus.CodeLockLost)
		s.wantDeliverable("afterwards", "a", "b", "c", "d")
	}},
	{name: "settling by a lock token that lapsed is a lost lock", check: func(s *scene) {
		s.text("x")
		r := s.receiver()
		bare := &azservicebus.ReceivedMessage{LockToken: s.one(r).LockToken}
		s.lapse()
		s.wantCode("CompleteMessage", r.CompleteMessage(s.soon(), bare, nil), azservicebus.CodeLockLost)
		bare.LockToken[0]++
		s.wantCode("CompleteMessage with a token never issued", r.CompleteMessage(s.soon(), bare, nil), azservicebus.CodeLockLost)
	}},
	{name: "settling twice is a lost lock", check: func(s *scene) {
		s.text("x")
		r := s.receiver()
		m := s.one(r)
		s.must(r.CompleteMessage(s.ctx, m, nil))
		bare := &azservicebus.ReceivedMessage{LockToken: m.LockToken}
		s.wantCode("second CompleteMessage", r.CompleteMessage(s.soon(), bare, nil), azservicebus.CodeLockLost)
	}},
	{name: "a renewed lock outlives its first end", check: func(s *scene) {
		s.text("x")
		r := s.receiver()
		m := s.one(r)
		for range 4 { // two lock durations altogether
			s.target.Wait(s.target.LockDuration / 2)
			before := *m.LockedUntil
			s.must(r.RenewMessageLock(s.ctx, m, nil))
			if !m.LockedUntil.After(before) {
				s.Fatalf("renewed until %v, was %v", m.LockedUntil, before)
			}
		}
		s.wantDeliverable("while renewed")
		s.must(r.CompleteMessage(s.ctx, m, nil))
		s.wantBodies("left", s.peek(r))
	}},
	{name: "a lock that lapsed cannot be renewed", check: func(s *scene) {
		s.text("x")
		r := s.receiver()
		m := s.one(r)
		s.lapse()
		s.wantCode("RenewMessageLock", r.RenewMessageLock(s.soon(), m, nil), azservicebus.CodeLockLost)
	}},
	{name: "a connection that is cut leaves its locks", check: func(s *scene) {
		s.needsCut()
		s.text("settled", "lost")
		r := s.receiver()
		ms := s.receive(r, 2)
		s.target.Cut()
		// The same client recovers, and settles without the link of the lock.
		s.must(r.CompleteMessage(s.ctx, &azservicebus.ReceivedMessage{LockToken: ms[0].LockToken}, nil))
		other := s.receiverOf(s.newClient(), nil)
		s.wantCount("while locked", s.peek(other)[0], 1)
		s.lapse()
		s.wantCode("CompleteMessage",
			r.CompleteMessage(s.soon(), &azservicebus.ReceivedMessage{LockToken: ms[1].LockToken}, nil), azservicebus.CodeLockLost)
		m := s.one(other)
		s.wantBodies("again", []*azservicebus.ReceivedMessage{m}, "lost")
		s.wantCount("after the lock lapsed", m, 2)
	}},
	{name: "the lock of one message does not hold back others", check: func(s *scene) {
		s.text("a", "b")
		r := s.receiver()
		a := s.one(r)
		s.wantDeliverable("while a is locked", "b")
		s.target.Wait(time.Second)
		s.must(r.AbandonMessage(s.ctx, a, nil))
		s.wantDeliverable("after abandon", "a", "b")
	}},
}
