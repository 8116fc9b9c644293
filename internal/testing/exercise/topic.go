// SPDX-License-Identifier: Apache-2.0

package exercise

import (
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"overdue/internal/broker"
)

// topic makes a topic for the case.
func (s topics) topic(cfg broker.TopicConfig) string {
	s.Helper()
	if s.target.CreateTopic == nil {
		s.Skip("the target has no topics")
	}
	return s.target.CreateTopic(s.T, cfg)
}

// subscribe makes a subscription, with these rules where there are any.
func (s topics) subscribe(topic string, cfg broker.SubscriptionConfig, rules ...broker.RuleConfig) {
	s.Helper()
	cfg.LockDuration = s.target.LockDuration
	s.target.CreateSubscription(s.T, topic, cfg, rules...)
}

func subscription(topic, name string) string { return topic + "/Subscriptions/" + name }

// publish sends messages to a topic.
func (s topics) publish(topic string, ms ...*azservicebus.Message) {
	s.Helper()
	sender := s.senderTo(topic)
	for _, m := range ms {
		s.must(sender.SendMessage(s.ctx, m, nil))
	}
	s.must(sender.Close(s.ctx))
}

// subscribed opens a receiver on a subscription.
func (s topics) subscribed(topic, name string, o *azservicebus.ReceiverOptions) *azservicebus.Receiver {
	s.Helper()
	r, err := s.client.NewReceiverForSubscription(topic, name, o)
	s.must(err)
	return r
}

// deadIn returns the dead letters of a subscription, which should be n.
func (s topics) deadIn(topic, name string, n int) []*azservicebus.ReceivedMessage {
	s.Helper()
	return s.receive(s.subscribed(topic, name, &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter}), n)
}

// drained completes all that waits at an address, and checks the bodies.
func (s rawLinks) drained(address string, want ...string) []*amqp.Message {
	s.Helper()
	r := s.link(s.session(), address)
	ms := s.nudge(r, 100, len(want))
	for _, m := range ms {
		s.must(r.AcceptMessage(s.ctx, m))
	}
	s.must(r.Close(s.ctx))
	s.wantBodiesRaw(address, ms, want...)
	return ms
}

func body(text string) *azservicebus.Message { return &azservicebus.Message{Body: []byte(text)} }

var topicSpecs = []spec{
	{name: "every subscription gets a copy of its own", check: func(s *scene) {
		t := s.topics.topic(broker.TopicConfig{})
		s.topics.subscribe(t, broker.SubscriptionConfig{Name: "a"})
		s.topics.publish(t, body("early"))
		s.topics.subscribe(t, broker.SubscriptionConfig{Name: "b"})
		s.topics.publish(t, body("x"), body("y"))
		a, b := s.topics.subscribed(t, "a", nil), s.topics.subscribed(t, "b", nil)
		inA, inB := s.receive(a, 3), s.receive(b, 2)
		s.wantBodies("a", inA, "early", "x", "y")
		s.wantBodies("b", inB, "x", "y")
		if *inB[0].SequenceNumber != 1 || *inB[1].SequenceNumber != 2 {
			s.Errorf("sequence numbers in b are %d and %d, want its own, 1 and 2", *inB[0].SequenceNumber, *inB[1].SequenceNumber)
		}
		if got := inB[0].EnqueuedSequenceNumber; got == nil || *got != 2 {
			s.Errorf("x came to b with the enqueued sequence number %v, want 2, its number in the topic", got)
		}
		s.must(a.CompleteMessage(s.ctx, inA[1], nil))
		s.must(b.AbandonMessage(s.ctx, inB[0], nil))
		s.wantBodies("b after a has completed x", s.receive(b, 1), "x")
	}},
	{name: "what nobody subscribes to is gone", check: func(s *scene) {
		t := s.topics.topic(broker.TopicConfig{})
		s.topics.publish(t, body("x"))
		s.topics.subscribe(t, broker.SubscriptionConfig{Name: "a"})
		s.topics.publish(t, body("y"))
		s.raw.drained(subscription(t, "a"), "y")
	}},
	{name: "a batch is published", check: func(s *scene) {
		t := s.topics.topic(broker.TopicConfig{})
		s.topics.subscribe(t, broker.SubscriptionConfig{Name: "a"})
		s.topics.subscribe(t, broker.SubscriptionConfig{Name: "b"}, sqlRule("even", "n % 2 = 0"))
		sender := s.senderTo(t)
		batch, err := sender.NewMessageBatch(s.ctx, nil)
		s.must(err)
		for i := range 4 {
			m := body(string(rune('0' + i)))
			m.ApplicationProperties = map[string]any{"n": i}
			s.must(batch.AddMessage(m, nil))
		}
		s.must(sender.SendMessageBatch(s.ctx, batch, nil))
		s.raw.drained(subscription(t, "a"), "0", "1", "2", "3")
		s.raw.drained(subscription(t, "b"), "0", "2")
	}},
	{name: "a scheduled message waits in the topic", check: func(s *scene) {
		t := s.topics.topic(broker.TopicConfig{})
		s.topics.subscribe(t, broker.SubscriptionConfig{Name: "a"})
		sender := s.senderTo(t)
		at := s.now().Add(soonest)
		numbers, err := sender.ScheduleMessages(s.ctx, []*azservicebus.Message{body("x"), body("cancelled")}, at, nil)
		s.must(err)
		s.must(sender.CancelScheduledMessages(s.ctx, numbers[1:], nil))
		r := s.topics.subscribed(t, "a", nil)
		if ms := s.peek(r); len(ms) != 0 {
			s.Errorf("the subscription shows %d messages before their time, want none", len(ms))
		}
		s.target.Wait(soonest + time.Second)
		m := s.one(r)
		if string(m.Body) != "x" || m.EnqueuedTime.Before(at.Truncate(time.Millisecond)) {
			s.Errorf("received %s, enqueued %v, want x, enqueued not before %v", m.Body, m.EnqueuedTime, at)
		}
		if m.State != azservicebus.MessageStateScheduled {
			s.Errorf("state = %d, want scheduled", m.State)
		}
	}},
	{name: "a subscription is peeked and settled like a queue", check: func(s *scene) {
		t := s.topics.topic(broker.TopicConfig{})
		s.topics.subscribe(t, broker.SubscriptionConfig{Name: "a", MaxDeliveryCount: 2})
		s.topics.publish(t, body("x"), body("y"), body("z"))
		r := s.topics.subscribed(t, "a", nil)
		s.wantBodies("peeked", s.peek(r), "x", "y", "z")
		ms := s.receive(r, 3)
		s.must(r.DeadLetterMessage(s.ctx, ms[0], &azservicebus.DeadLetterOptions{Reason: new("Why")}))
		s.must(r.DeferMessage(s.ctx, ms[1], nil))
		s.must(r.RenewMessageLock(s.ctx, ms[2], nil))
		s.must(r.AbandonMessage(s.ctx, ms[2], nil))
		deferred, err := r.ReceiveDeferredMessages(s.ctx, []int64{*ms[1].SequenceNumber}, nil)
		s.must(err)
		s.wantBodies("deferred", deferred, "y")
		s.must(r.CompleteMessage(s.ctx, deferred[0], nil))
		s.must(r.AbandonMessage(s.ctx, s.one(r), nil))
		dead := s.topics.deadIn(t, "a", 2)
		s.wantBodies("dead letters", dead, "x", "z")
		if got := dead[0].DeadLetterReason; got == nil || *got != "Why" {
			s.Errorf("reason %v, want Why", got)
		}
	}},
	{name: "the shortest time to live counts", check: func(s *scene) {
		t := s.topics.topic(broker.TopicConfig{DefaultMessageTimeToLive: 2 * time.Minute})
		s.topics.subscribe(t, broker.SubscriptionConfig{Name: "minute", DefaultMessageTimeToLive: time.Minute, DeadLetteringOnMessageExpiration: true})
		s.topics.subscribe(t, broker.SubscriptionConfig{Name: "hour", DefaultMessageTimeToLive: time.Hour})
		short, long := 30*time.Second, 90*time.Minute
		own, capped := body("own"), body("capped")
		own.TimeToLive, capped.TimeToLive = &short, &long
		s.topics.publish(t, own, capped, body("none"))
		for _, c := range []struct {
			name string
			want []time.Duration
		}{{"minute", []time.Duration{short, time.Minute, time.Minute}}, {"hour", []time.Duration{short, 2 * time.Minute, 2 * time.Minute}}} {
			r := s.topics.subscribed(t, c.name, nil)
			for i, m := range s.receive(r, 3) {
				if m.TimeToLive == nil || *m.TimeToLive != c.want[i] {
					s.Errorf("%s in %s lives for %v, want %v", m.Body, c.name, m.TimeToLive, c.want[i])
				}
				s.must(r.AbandonMessage(s.ctx, m, nil))
			}
			s.must(r.Close(s.ctx))
		}
		s.target.Wait(61 * time.Second)
		s.raw.drained(subscription(t, "minute"))
		for _, m := range s.topics.deadIn(t, "minute", 3) {
			if m.DeadLetterReason == nil || *m.DeadLetterReason != "TTLExpiredException" {
				s.Errorf("%s is dead for %v, want TTLExpiredException", m.Body, m.DeadLetterReason)
			}
		}
	}},
	{name: "a topic drops duplicates", check: func(s *scene) {
		t := s.topics.topic(broker.TopicConfig{RequiresDuplicateDetection: true})
		s.topics.subscribe(t, broker.SubscriptionConfig{Name: "a"})
		for _, text := range []string{"first", "again"} {
			m := body(text)
			m.MessageID = new("same")
			s.topics.publish(t, m)
		}
		s.raw.drained(subscription(t, "a"), "first")
	}},
	{name: "a topic is not received from, and a subscription not sent to", check: func(s *scene) {
		t := s.topics.topic(broker.TopicConfig{})
		s.topics.subscribe(t, broker.SubscriptionConfig{Name: "a"})
		_, err := s.raw.session().NewReceiver(s.soon(), t, nil)
		s.wantCondition("a receiver on a topic", err, amqp.ErrCondNotAllowed)
		_, err = s.raw.session().NewSender(s.soon(), subscription(t, "a"), nil)
		s.wantCondition("a sender to a subscription", err, amqp.ErrCondNotAllowed)
		_, err = s.raw.session().NewReceiver(s.soon(), subscription(t, "missing"), nil)
		s.wantCondition("a receiver on a subscription that does not exist", err, amqp.ErrCondNotFound)
	}},
	{name: "addresses are read without case", check: func(s *scene) {
		t := s.topics.topic(broker.TopicConfig{})
		s.topics.subscribe(t, broker.SubscriptionConfig{Name: "Mixed"})
		s.topics.publish(t, body("x"))
		r := s.raw.link(s.raw.session(), t+"/SUBSCRIPTIONS/mixed")
		m := s.raw.take(r, "x")[0]
		s.must(r.RejectMessage(s.ctx, m, nil))
		s.raw.drained(t+"/subscriptions/MIXED/$deadletterqueue", "x")
	}},
	{name: "a subscription forwards", check: func(s *scene) {
		t := s.topics.topic(broker.TopicConfig{})
		s.topics.subscribe(t, broker.SubscriptionConfig{Name: "a", ForwardTo: s.queue}, sqlRule("wanted", "wanted = TRUE"))
		for text, wanted := range map[string]bool{"no": false, "yes": true} {
			m := body(text)
			m.ApplicationProperties = map[string]any{"wanted": wanted}
			s.topics.publish(t, m)
		}
		s.raw.drained(s.queue, "yes")
	}},
}
