// SPDX-License-Identifier: Apache-2.0

package exercise

import (
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"overdue/internal/broker"
)

func ptr[T any](v T) *T { return &v }

var settleSpecs = []spec{
	{name: "complete removes the message", check: func(s *scene) {
		s.text("a", "b")
		r := s.receiver()
		s.must(r.CompleteMessage(s.ctx, s.one(r), nil))
		s.wantBodies("left", s.peek(r), "b")
		s.lapse()
		s.wantDeliverable("after a lock duration", "b")
	}},
	{name: "abandon gives the message back with its properties modified", check: func(s *scene) {
		s.send(&azservicebus.Message{Body: []byte("x"), ApplicationProperties: map[string]any{"old": "1", "kept": "k"}})
		r := s.receiver()
		s.must(r.AbandonMessage(s.ctx, s.one(r), &azservicebus.AbandonMessageOptions{
			PropertiesToModify: map[string]any{"old": "2", "new": int64(3)},
		}))
		m := s.one(r)
		for k, want := range map[string]any{"old": "2", "kept": "k", "new": int64(3)} {
			if got := m.ApplicationProperties[k]; got != want {
				s.Errorf("property %s = %v, want %v", k, got, want)
			}
		}
	}},
	{name: "dead-letter moves the message with reason, description and properties", check: func(s *scene) {
		s.text("x")
		r := s.receiver()
		m := s.one(r)
		s.must(r.DeadLetterMessage(s.ctx, m, &azservicebus.DeadLetterOptions{
			Reason:             ptr("BadInput"),
			ErrorDescription:   ptr("The input is bad."),
			PropertiesToModify: map[string]any{"line": int32(7)},
		}))
		s.wantBodies("left", s.peek(r))
		d := s.one(s.deadLetters())
		if d.DeadLetterReason == nil || *d.DeadLetterReason != "BadInput" ||
			d.DeadLetterErrorDescription == nil || *d.DeadLetterErrorDescription != "The input is bad." {
			s.Errorf("reason %v, description %v", d.DeadLetterReason, d.DeadLetterErrorDescription)
		}
		if d.ApplicationProperties["line"] != int32(7) {
			s.Errorf("properties = %v, want line=7", d.ApplicationProperties)
		}
		if *d.SequenceNumber != *m.SequenceNumber || !d.EnqueuedTime.Equal(*m.EnqueuedTime) {
			s.Errorf("number %d enqueued %v, want %d and %v as before", *d.SequenceNumber, d.EnqueuedTime, *m.SequenceNumber, m.EnqueuedTime)
		}
	}},
	{name: "rejected without a reason dead-letters", check: func(s *scene) {
		s.text("x")
		r := s.raw.link(s.raw.session(), s.queue)
		ms := s.raw.take(r, "x")
		s.must(r.RejectMessage(s.ctx, ms[0], nil))
		s.wantBodies("dead-lettered", s.peek(s.deadLetters()), "x")
	}},
	{name: "a message in the dead-letter queue cannot be dead-lettered", check: func(s *scene) {
		s.text("x")
		r, d := s.receiver(), s.deadLetters()
		s.must(r.DeadLetterMessage(s.ctx, s.one(r), nil))
		m := s.one(d)
		if err := d.DeadLetterMessage(s.soon(), m, nil); err == nil {
			s.Error("DeadLetterMessage in the dead-letter queue succeeded")
		}
		s.wantBodies("dead-lettered", s.peek(d), "x")
		// The SDK believes that m is settled, whatever the answer was.
		s.must(d.CompleteMessage(s.ctx, &azservicebus.ReceivedMessage{LockToken: m.LockToken}, nil))
		s.wantBodies("dead-lettered", s.peek(d))
	}},
	{name: "released gives the message back to its place", check: func(s *scene) {
		s.text("a", "b", "c")
		r := s.raw.link(s.raw.session(), s.queue)
		ms := s.raw.take(r, "a", "b")
		s.must(r.ReleaseMessage(s.ctx, ms[1]))
		s.must(r.ReleaseMessage(s.ctx, ms[0]))
		s.wantBodies("received again", s.receive(s.receiver(), 3), "a", "b", "c")
	}},
	{name: "an outcome is echoed", check: func(s *scene) {
		s.text("a", "b", "c", "d", "e")
		r := s.raw.link(s.raw.session(), s.queue)
		ms := s.raw.take(r, "a", "b", "c", "d", "e")
		// In mode second each of these returns when the broker has settled.
		s.must(r.AcceptMessage(s.ctx, ms[0]))
		s.must(r.ReleaseMessage(s.ctx, ms[1]))
		s.must(r.ModifyMessage(s.ctx, ms[2], &amqp.ModifyMessageOptions{DeliveryFailed: true}))
		s.must(r.ModifyMessage(s.ctx, ms[3], &amqp.ModifyMessageOptions{UndeliverableHere: true}))
		s.must(r.RejectMessage(s.ctx, ms[4], &amqp.Error{Condition: "com.microsoft:dead-letter"}))
		s.wantDeliverable("afterwards", "b", "c")
	}},
	{name: "a message received for deletion cannot be settled", check: func(s *scene) {
		s.text("x")
		r := s.receiverOf(s.client, destructive)
		m := s.one(r)
		if err := r.CompleteMessage(s.soon(), m, nil); err == nil {
			s.Error("CompleteMessage succeeded")
		}
	}},
	{name: "a message settles on another connection by its lock token alone", queue: broker.QueueConfig{MaxDeliveryCount: 10},
		check: func(s *scene) {
			s.text("complete", "abandon", "dead-letter", "defer")
			ms := s.receive(s.receiver(), 4)
			other := s.receiverOf(s.newClient(), nil)
			bare := func(i int) *azservicebus.ReceivedMessage {
				return &azservicebus.ReceivedMessage{LockToken: ms[i].LockToken}
			}
			s.must(other.CompleteMessage(s.ctx, bare(0), nil))
			s.must(other.AbandonMessage(s.ctx, bare(1), &azservicebus.AbandonMessageOptions{
				PropertiesToModify: map[string]any{"k": "v"},
			}))
			s.must(other.DeadLetterMessage(s.ctx, bare(2), &azservicebus.DeadLetterOptions{Reason: ptr("Why")}))
			s.must(other.DeferMessage(s.ctx, bare(3), nil))

			s.wantBodies("left", s.peek(other), "abandon", "defer")
			m := s.one(other)
			s.wantBodies("available", []*azservicebus.ReceivedMessage{m}, "abandon")
			if m.ApplicationProperties["k"] != "v" {
				s.Errorf("properties = %v, want k=v", m.ApplicationProperties)
			}
			dead := s.peek(s.deadLetters())
			s.wantBodies("dead-lettered", dead, "dead-letter")
			if r := dead[0].DeadLetterReason; r == nil || *r != "Why" {
				s.Errorf("reason = %v, want Why", r)
			}
			deferred, err := other.ReceiveDeferredMessages(s.ctx, []int64{*ms[3].SequenceNumber}, nil)
			s.must(err)
			s.wantBodies("deferred", deferred, "defer")
		}},
	{name: "the locks of a closed receiver can be settled", check: func(s *scene) {
		s.text("a", "b")
		r := s.receiver()
		ms := s.receive(r, 2)
		s.must(r.Close(s.ctx))
		s.wantDeliverable("while locked")
		other := s.receiver()
		s.must(other.CompleteMessage(s.ctx, ms[0], nil))
		s.must(other.AbandonMessage(s.ctx, ms[1], nil))
		s.wantDeliverable("after settling", "b")
	}},
}
