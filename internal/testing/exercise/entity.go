// SPDX-License-Identifier: Apache-2.0

package exercise

import (
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"overdue/internal/broker"
)

const condDisabled amqp.ErrCond = "com.microsoft:entity-disabled"

var entitySpecs = []spec{
	{name: "a client gets over the update of a queue", check: func(s *scene) {
		r := s.receiver()
		s.text("before")
		m := s.one(r)
		s.target.UpdateQueue(s.T, broker.QueueConfig{Name: s.queue, LockDuration: s.target.LockDuration, MaxDeliveryCount: 3})
		s.must(r.CompleteMessage(s.ctx, m, nil))
		s.text("after")
		s.wantBodies("after the update", s.receive(r, 1), "after")
	}},
	{name: "an update detaches the links of a queue", check: func(s *scene) {
		r := s.raw.link(s.raw.session(), s.queue)
		sender, err := s.raw.session().NewSender(s.ctx, s.queue, nil)
		s.must(err)
		s.target.UpdateQueue(s.T, broker.QueueConfig{Name: s.queue, LockDuration: s.target.LockDuration, MaxDeliveryCount: 3})
		_, err = r.Receive(s.soon(), nil)
		s.wantCondition("Receive", err, amqp.ErrCondDetachForced)
		err = sender.Send(s.soon(), amqp.NewMessage([]byte("x")), nil)
		s.wantCondition("Send", err, amqp.ErrCondDetachForced)
	}},
	{name: "an update that changes nothing lets the links be", check: func(s *scene) {
		r := s.raw.link(s.raw.session(), s.queue)
		s.target.UpdateQueue(s.T, broker.QueueConfig{Name: s.queue, LockDuration: s.target.LockDuration})
		s.text("x")
		s.must(r.IssueCredit(1))
		m, err := r.Receive(s.soon(), nil)
		s.must(err)
		s.must(r.AcceptMessage(s.ctx, m))
	}},
	{name: "an update changes how messages are treated from then on", check: func(s *scene) {
		s.target.UpdateQueue(s.T, broker.QueueConfig{Name: s.queue, LockDuration: s.target.LockDuration, MaxDeliveryCount: 1})
		s.text("x")
		r := s.receiver()
		s.must(r.AbandonMessage(s.ctx, s.one(r), nil))
		s.wantBodies("dead letters", s.receive(s.deadLetters(), 1), "x")
	}},
	{name: "a disabled queue is not used", check: func(s *scene) {
		for _, c := range []struct {
			status         broker.Status
			sends, receive bool
		}{
			{broker.Disabled, false, false}, {broker.SendDisabled, false, true}, {broker.ReceiveDisabled, true, false}, {broker.Active, true, true},
		} {
			s.target.UpdateQueue(s.T, broker.QueueConfig{Name: s.queue, LockDuration: s.target.LockDuration, Status: c.status})
			_, err := s.raw.session().NewSender(s.soon(), s.queue, nil)
			s.wantRefused("a sender", err, !c.sends, condDisabled)
			_, err = s.raw.session().NewReceiver(s.soon(), s.queue, nil)
			s.wantRefused("a receiver", err, !c.receive, condDisabled)
		}
	}},
	{name: "a deleted queue is gone with its links", check: func(s *scene) {
		s.text("x")
		session := s.raw.session()
		r := s.raw.link(session, s.queue)
		s.target.DeleteQueue(s.T, s.queue)
		_, err := r.Receive(s.soon(), nil)
		s.wantCondition("Receive", err, amqp.ErrCondNotFound)
		_, err = session.NewReceiver(s.soon(), s.queue, nil)
		s.wantCondition("a receiver", err, amqp.ErrCondNotFound)
		_, err = s.receiver().PeekMessages(s.soon(), 1, nil)
		s.wantCode("PeekMessages", err, azservicebus.CodeNotFound)
	}},
	{name: "a queue that nobody uses deletes itself", check: func(s *scene) {
		const idle = 5 * time.Minute
		name := s.another(broker.QueueConfig{AutoDeleteOnIdle: idle})
		used := s.another(broker.QueueConfig{AutoDeleteOnIdle: idle})
		waiting := s.another(broker.QueueConfig{AutoDeleteOnIdle: idle})
		s.raw.link(s.raw.session(), waiting) // a receiver that waits is a use
		sender := s.senderTo(used)
		for range 3 {
			s.target.Wait(idle * 2 / 3)
			s.must(sender.SendMessage(s.ctx, &azservicebus.Message{}, nil))
			s.must(sender.Close(s.ctx))
			sender = s.senderTo(used)
		}
		session := s.raw.session()
		_, err := session.NewSender(s.soon(), name, nil)
		s.wantCondition("a sender to the idle queue", err, amqp.ErrCondNotFound)
		for _, name := range []string{used, waiting} {
			_, err = session.NewSender(s.soon(), name, nil)
			s.must(err)
		}
	}},
	{name: "a queue with scheduled messages is not idle", check: func(s *scene) {
		const idle = 5 * time.Minute
		name := s.another(broker.QueueConfig{AutoDeleteOnIdle: idle})
		sender := s.senderTo(name)
		_, err := sender.ScheduleMessages(s.ctx, []*azservicebus.Message{{Body: []byte("x")}}, s.now().Add(3*idle), nil)
		s.must(err)
		s.must(sender.Close(s.ctx))
		s.target.Wait(3*idle + time.Second)
		r, err := s.client.NewReceiverForQueue(name, nil)
		s.must(err)
		s.wantBodies("when it is due", s.receive(r, 1), "x")
	}},
}

// wantRefused checks whether a link was refused as it should be.
func (s *scene) wantRefused(what string, err error, refused bool, cond amqp.ErrCond) {
	s.Helper()
	if !refused {
		s.must(err)
		return
	}
	s.wantCondition(what, err, cond)
}
