// SPDX-License-Identifier: Apache-2.0

package exercise

import (
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"overdue/internal/broker"
)

// another makes one more queue for a case.
func (s *scene) another(cfg broker.QueueConfig) string {
	s.Helper()
	cfg.LockDuration = s.target.LockDuration
	return s.target.CreateQueue(s.T, cfg)
}

// sendTo sends messages with these bodies to a queue or topic.
func (s *scene) sendTo(name string, bodies ...string) {
	s.Helper()
	sender := s.senderTo(name)
	for _, b := range bodies {
		s.must(sender.SendMessage(s.ctx, &azservicebus.Message{Body: []byte(b)}, nil))
	}
	s.must(sender.Close(s.ctx))
}

// deadOf opens a receiver on the dead-letter queue of another queue than the scene's.
func (s *scene) deadOf(name string) *azservicebus.Receiver {
	s.Helper()
	r, err := s.client.NewReceiverForQueue(name, &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
	s.must(err)
	return r
}

var forwardSpecs = []spec{
	{name: "a queue forwards to another", check: func(s *scene) {
		first := s.another(broker.QueueConfig{ForwardTo: s.queue})
		s.sendTo(first, "a", "b")
		r := s.receiver()
		ms := s.receive(r, 2)
		s.wantBodies("at the end", ms, "a", "b")
		for i, m := range ms {
			if got := m.EnqueuedSequenceNumber; got == nil || *got != int64(i+1) {
				s.Errorf("%s: enqueued sequence number %v, want %d, its number where it was sent", m.Body, got, i+1)
			}
			s.wantCount("forwarded", m, 1)
			s.must(r.CompleteMessage(s.ctx, m, nil))
		}
	}},
	{name: "a queue that forwards is not received from", check: func(s *scene) {
		first := s.another(broker.QueueConfig{ForwardTo: s.queue})
		_, err := s.raw.session().NewReceiver(s.soon(), first, nil)
		s.wantCondition("a receiver", err, amqp.ErrCondNotAllowed)
		s.raw.take(s.raw.link(s.raw.session(), first+"/$DeadLetterQueue"))
	}},
	{name: "a scheduled message is forwarded when it is due", check: func(s *scene) {
		first := s.another(broker.QueueConfig{ForwardTo: s.queue})
		sender := s.senderTo(first)
		at := s.now().Add(ttl)
		_, err := sender.ScheduleMessages(s.ctx, []*azservicebus.Message{{Body: []byte("x")}}, at, nil)
		s.must(err)
		s.wantDeliverable("before")
		s.target.Wait(at.Sub(s.now()) + ttl)
		s.wantBodies("afterwards", s.receive(s.receiver(), 1), "x")
	}},
	{name: "the time to live starts again where a message is forwarded to", queue: deadLettering, check: func(s *scene) {
		first := s.another(broker.QueueConfig{ForwardTo: s.queue})
		sender := s.senderTo(first)
		d := ttl
		s.must(sender.SendMessage(s.ctx, &azservicebus.Message{Body: []byte("x"), TimeToLive: &d}, nil))
		m := s.one(s.receiver())
		if m.ExpiresAt == nil || !m.ExpiresAt.Equal(m.EnqueuedTime.Add(ttl)) {
			s.Errorf("expires at %v, want %v after it was enqueued at %v", m.ExpiresAt, ttl, m.EnqueuedTime)
		}
	}},
	{name: "dead letters are forwarded with what is known of them", check: func(s *scene) {
		first := s.another(broker.QueueConfig{ForwardDeadLetteredMessagesTo: s.queue})
		s.sendTo(first, "x")
		r, err := s.client.NewReceiverForQueue(first, nil)
		s.must(err)
		reason, description := "Reason", "Description"
		s.must(r.DeadLetterMessage(s.ctx, s.one(r), &azservicebus.DeadLetterOptions{
			Reason: &reason, ErrorDescription: &description, PropertiesToModify: map[string]any{"k": "v"},
		}))
		m := s.one(s.receiver())
		if m.DeadLetterReason == nil || *m.DeadLetterReason != reason || m.DeadLetterErrorDescription == nil || *m.DeadLetterErrorDescription != description {
			s.Errorf("reason %v, description %v; want %s, %s", m.DeadLetterReason, m.DeadLetterErrorDescription, reason, description)
		}
		if m.DeadLetterSource == nil || *m.DeadLetterSource != first {
			s.Errorf("dead-letter source %v, want %s", m.DeadLetterSource, first)
		}
		if m.ApplicationProperties["k"] != "v" {
			s.Errorf("properties %v, want k=v", m.ApplicationProperties)
		}
	}},
	{name: "a message is forwarded four times and no more", check: func(s *scene) {
		next := s.queue
		var chain []string
		for range 5 {
			next = s.another(broker.QueueConfig{ForwardTo: next})
			chain = append(chain, next)
		}
		s.sendTo(chain[3], "four")
		s.sendTo(chain[4], "five")
		s.wantBodies("at the end", s.receive(s.receiver(), 1), "four")
		m := s.one(s.deadOf(chain[0]))
		s.wantBodies("on the way", []*azservicebus.ReceivedMessage{m}, "five")
		if m.DeadLetterReason == nil || *m.DeadLetterReason != "MaxTransferHopCountExceeded" {
			s.Errorf("reason %v, want MaxTransferHopCountExceeded", m.DeadLetterReason)
		}
	}},
	{name: "what cannot be forwarded is a dead letter", check: func(s *scene) {
		s.loose()
		full := s.another(broker.QueueConfig{MaxSize: 1})
		disabled := s.another(broker.QueueConfig{Status: broker.Disabled})
		for _, to := range []string{"no-such-queue", full, disabled} {
			first := s.another(broker.QueueConfig{ForwardTo: to})
			s.sendTo(first, "x")
			s.wantBodies("forwarded to "+to, s.receive(s.deadOf(first), 1), "x")
			transfer, err := s.client.NewReceiverForQueue(first, &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueTransfer})
			s.must(err)
			s.wantBodies("in the transfer dead-letter queue", s.peek(transfer))
		}
	}},
	{name: "a message without a session is not forwarded to a queue with sessions", queue: broker.QueueConfig{RequiresSession: true}, check: func(s *scene) {
		topic := s.topics.topic(broker.TopicConfig{})
		s.topics.subscribe(topic, broker.SubscriptionConfig{Name: "a", ForwardTo: s.queue})
		s.topics.publish(topic, &azservicebus.Message{Body: []byte("x")})
		s.wantBodies("in the dead-letter queue", s.topics.deadIn(topic, "a", 1), "x")
	}},
	{name: "what cannot be forwarded goes where dead letters go", check: func(s *scene) {
		closed := s.another(broker.QueueConfig{})
		first := s.another(broker.QueueConfig{ForwardTo: closed, ForwardDeadLetteredMessagesTo: s.queue})
		s.target.UpdateQueue(s.T, broker.QueueConfig{Name: closed, Status: broker.SendDisabled, LockDuration: s.target.LockDuration})
		s.sendTo(first, "x")
		m := s.one(s.receiver())
		s.wantBodies("forwarded as a dead letter", []*azservicebus.ReceivedMessage{m}, "x")
		if m.DeadLetterSource == nil || *m.DeadLetterSource != first {
			s.Errorf("dead-letter source %v, want %s", m.DeadLetterSource, first)
		}
	}},
	{name: "a forward is bound to its target, not to the name", check: func(s *scene) {
		target := s.another(broker.QueueConfig{})
		first := s.another(broker.QueueConfig{ForwardTo: target})
		s.target.DeleteQueue(s.T, target)
		s.another(broker.QueueConfig{Name: target})
		s.sendTo(first, "x")
		m := s.one(s.deadOf(first))
		s.wantBodies("to a target that was made again", []*azservicebus.ReceivedMessage{m}, "x")
		if got := m.DeadLetterErrorDescription; got == nil || *got != "The transfer destination entity does not exist." {
			s.Errorf("description %v, want that the destination does not exist", got)
		}
		s.target.UpdateQueue(s.T, broker.QueueConfig{Name: first, ForwardTo: target, MaxDeliveryCount: 5, LockDuration: s.target.LockDuration})
		s.sendTo(first, "y")
		r, err := s.client.NewReceiverForQueue(target, nil)
		s.must(err)
		s.wantBodies("after an update", s.receive(r, 1), "y")
	}},
	{name: "forwarding in a circle ends", check: func(s *scene) {
		s.loose()
		// The names of a namespace are free, so the first can forward to one that comes later.
		first := s.another(broker.QueueConfig{Name: "circle-1", ForwardTo: "circle-2"})
		second := s.another(broker.QueueConfig{Name: "circle-2", ForwardTo: "circle-1"})
		s.sendTo(first, "x")
		s.wantBodies("after four forwards", s.receive(s.deadOf(first), 1), "x")
		s.sendTo(second, "y")
		s.wantBodies("after four forwards", s.receive(s.deadOf(second), 1), "y")
	}},
}
