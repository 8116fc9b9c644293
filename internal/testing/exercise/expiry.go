// SPDX-License-Identifier: Apache-2.0

package exercise

import (
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
)

// deadLettering is a queue whose expired messages can be found again.
var deadLettering = broker.QueueConfig{DeadLetteringOnMessageExpiration: true}

// ttl is how long the messages of these cases live: less than any lock, so that
// a case can wait for the one without the other.
const ttl = 2 * time.Second

// expire waits until messages of that time to live have expired.
func (s *scene) expire() { s.target.Wait(ttl + time.Second) }

var expirySpecs = []spec{
	{name: "an expired message is dead-lettered, not delivered", queue: deadLettering, check: func(s *scene) {
		s.mortal(ttl, "x")
		before := s.peek(s.receiver())[0]
		s.expire()
		s.wantDeliverable("after the time to live")
		m := s.one(s.deadLetters())
		if m.DeadLetterReason == nil || *m.DeadLetterReason != "TTLExpiredException" ||
			m.DeadLetterErrorDescription == nil || *m.DeadLetterErrorDescription != "The message expired and was dead lettered." {
			s.Errorf("reason %v, description %v", m.DeadLetterReason, m.DeadLetterErrorDescription)
		}
		if *m.SequenceNumber != *before.SequenceNumber || !m.EnqueuedTime.Equal(*before.EnqueuedTime) {
			s.Errorf("number %d enqueued %v, want %d and %v as before", *m.SequenceNumber, m.EnqueuedTime, *before.SequenceNumber, before.EnqueuedTime)
		}
		if want := m.EnqueuedTime.Add(ttl); m.ExpiresAt == nil || !m.ExpiresAt.Equal(want) {
			s.Errorf("expires %v, want %v as before", m.ExpiresAt, want)
		}
		s.wantCount("dead-lettered", m, 1)
	}},
	{name: "an expired message is dropped where expiry does not dead-letter", check: func(s *scene) {
		s.mortal(ttl, "x")
		s.expire()
		s.wantDeliverable("after the time to live")
		s.wantBodies("left", s.peek(s.receiver()))
		s.wantBodies("dead-lettered", s.peek(s.deadLetters()))
	}},
	{name: "nobody receives: expiry as lazy as the namespace is", queue: deadLettering, check: func(s *scene) {
		s.text("live")
		s.mortal(ttl, "a", "b")
		r, d := s.receiver(), s.deadLetters()
		s.peek(r) // opens the link, without credit
		s.expire()
		if s.target.Expiry == queue.Eager {
			s.wantBodies("left", s.peek(r), "live")
			s.wantBodies("dead-lettered", s.peek(d), "a", "b")
			return
		}
		s.target.Wait(10 * time.Minute)
		s.wantBodies("left", s.peek(r), "live", "a", "b")
		s.wantBodies("dead-lettered", s.peek(d))
	}},
	{name: "one credit with drain flushes what has expired", queue: deadLettering, check: func(s *scene) {
		s.mortal(ttl, "a")
		s.text("live")
		s.mortal(ttl, "b", "c")
		s.expire()
		r := s.raw.link(s.raw.session(), s.queue)
		ms := s.raw.take(r, "live")
		s.must(r.ReleaseMessage(s.ctx, ms[0]))
		s.must(r.Close(s.ctx))
		peeker, d := s.receiver(), s.deadLetters()
		if s.target.Expiry == queue.LazyHead {
			// Messages behind the first live message stay.
			s.wantBodies("left", s.peek(peeker), "live", "b", "c")
			s.wantBodies("dead-lettered", s.peek(d), "a")
		} else {
			s.wantBodies("left", s.peek(peeker), "live")
			s.wantBodies("dead-lettered", s.peek(d), "a", "b", "c")
		}
		s.wantCount("the live message", s.peek(peeker)[0], 1)
	}},
	{name: "a waiting receiver has messages expire in time", queue: deadLettering, check: func(s *scene) {
		s.mortal(ttl, "a")
		live := s.raw.link(s.raw.session(), s.queue)
		s.raw.take(live, "a") // locked by somebody
		s.mortal(ttl, "b")
		s.expire()
		s.wantDeliverable("after the time to live")
		s.wantBodies("dead-lettered", s.peek(s.deadLetters()), "b")
	}},
	{name: "a locked message does not expire", queue: deadLettering, check: func(s *scene) {
		s.mortal(ttl, "x")
		r := s.receiver()
		m := s.one(r)
		s.expire()
		s.wantDeliverable("while locked")
		s.wantBodies("dead-lettered", s.peek(s.deadLetters()))
		s.must(r.CompleteMessage(s.ctx, m, nil))
		s.wantBodies("dead-lettered", s.peek(s.deadLetters()))
	}},
	{name: "an overdue message expires as soon as it is abandoned", queue: deadLettering, check: func(s *scene) {
		s.mortal(ttl, "x")
		r := s.receiver()
		m := s.one(r)
		s.expire()
		s.must(r.AbandonMessage(s.ctx, m, nil))
		s.wantBodies("left", s.peek(r))
		s.wantBodies("dead-lettered", s.peek(s.deadLetters()), "x")
	}},
	{name: "an overdue message expires as soon as it is released", queue: deadLettering, check: func(s *scene) {
		s.mortal(ttl, "x")
		r := s.raw.link(s.raw.session(), s.queue)
		ms := s.raw.take(r, "x")
		s.expire()
		s.must(r.ReleaseMessage(s.ctx, ms[0]))
		s.wantBodies("dead-lettered", s.peek(s.deadLetters()), "x")
	}},
	{name: "an overdue message expires as soon as its lock lapses", queue: deadLettering, check: func(s *scene) {
		s.mortal(ttl, "x")
		s.one(s.receiver())
		s.lapse()
		s.wantBodies("dead-lettered", s.peek(s.deadLetters()), "x")
	}},
	{name: "the entity's time to live caps the message's", queue: broker.QueueConfig{
		DeadLetteringOnMessageExpiration: true, DefaultMessageTimeToLive: ttl,
	}, check: func(s *scene) {
		s.mortal(time.Hour, "long")
		s.text("none")
		r := s.receiver()
		m := s.one(r)
		if m.TimeToLive == nil || *m.TimeToLive != ttl {
			s.Errorf("time to live = %v, want %v", m.TimeToLive, ttl)
		}
		s.must(r.AbandonMessage(s.ctx, m, nil))
		s.expire()
		s.wantDeliverable("after the entity's time to live")
		s.wantBodies("dead-lettered", s.peek(s.deadLetters()), "long", "none")
	}},
	{name: "a time to live of the entity alone shows on receipt, not on a peek", queue: broker.QueueConfig{
		DefaultMessageTimeToLive: time.Hour,
	}, check: func(s *scene) {
		s.text("x")
		r := s.receiver()
		// The Go SDK takes a header without a time to live for one of zero.
		p := s.peek(r)[0]
		if at := p.RawAMQPMessage.Properties.AbsoluteExpiryTime; p.TimeToLive != nil && *p.TimeToLive != 0 || at != nil {
			s.Errorf("peeked: time to live %v, expires %v; want neither", p.TimeToLive, at)
		}
		m := s.one(r)
		if want := m.EnqueuedTime.Add(time.Hour); m.TimeToLive == nil || *m.TimeToLive != time.Hour || m.ExpiresAt == nil || !m.ExpiresAt.Equal(want) {
			s.Errorf("received: time to live %v, expires %v; want 1h and %v", m.TimeToLive, m.ExpiresAt, want)
		}
	}},
	{name: "a message says when it expires", check: func(s *scene) {
		s.mortal(time.Minute, "x")
		r := s.receiver()
		for what, m := range map[string]*azservicebus.ReceivedMessage{"peeked": s.peek(r)[0], "received": s.one(r)} {
			want := m.EnqueuedTime.Add(time.Minute)
			if m.TimeToLive == nil || *m.TimeToLive != time.Minute || m.ExpiresAt == nil || !m.ExpiresAt.Equal(want) {
				s.Errorf("%s: time to live %v, expires %v; want 1m and %v", what, m.TimeToLive, m.ExpiresAt, want)
			}
			if at := m.RawAMQPMessage.Properties.AbsoluteExpiryTime; at == nil || at.Sub(want).Abs() > time.Millisecond {
				s.Errorf("%s: absolute-expiry-time = %v, want %v", what, at, want)
			}
		}
	}},
	{name: "nothing expires in the dead-letter queue", queue: deadLettering, check: func(s *scene) {
		s.mortal(ttl, "x")
		r, d := s.receiver(), s.deadLetters()
		s.must(r.DeadLetterMessage(s.ctx, s.one(r), nil))
		s.expire()
		m := s.one(d)
		s.wantBodies("dead-lettered", []*azservicebus.ReceivedMessage{m}, "x")
		s.must(d.AbandonMessage(s.ctx, m, nil))
		s.wantBodies("after abandon", s.receive(d, 1), "x")
	}},
	{name: "a scheduled message begins to live when it is activated", queue: deadLettering, check: func(s *scene) {
		r := s.receiver()
		s.text("clock")
		now := *s.peek(r)[0].EnqueuedTime
		life := ttl
		_, err := s.sender.ScheduleMessages(s.ctx, []*azservicebus.Message{{Body: []byte("x"), TimeToLive: &life}}, now.Add(time.Minute), nil)
		s.must(err)
		s.target.Wait(time.Minute + time.Second)
		s.wantDeliverable("after activation", "clock", "x")
		s.expire()
		s.wantDeliverable("after the time to live", "clock")
	}},
}
