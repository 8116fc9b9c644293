// SPDX-License-Identifier: Apache-2.0

package exercise

import (
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// deferOne sends a message and defers it. It returns the number.
func (s *scene) deferOne(r *azservicebus.Receiver, body string) int64 {
	s.Helper()
	s.text(body)
	m := s.one(r)
	s.must(r.DeferMessage(s.ctx, m, nil))
	return *m.SequenceNumber
}

// receiveDeferred receives deferred messages by number.
func (s *scene) receiveDeferred(r *azservicebus.Receiver, numbers ...int64) []*azservicebus.ReceivedMessage {
	s.Helper()
	ms, err := r.ReceiveDeferredMessages(s.ctx, numbers, nil)
	s.must(err)
	return ms
}

var deferSpecs = []spec{
	{name: "a deferred message is received by its number only", check: func(s *scene) {
		r := s.receiver()
		number := s.deferOne(r, "x")
		s.wantDeliverable("while deferred")
		ms := s.receiveDeferred(r, number)
		s.wantBodies("by number", ms, "x")
		if ms[0].State != azservicebus.MessageStateDeferred || ms[0].LockedUntil == nil || ms[0].LockToken == [16]byte{} {
			s.Errorf("state %d, locked until %v, token %x; want deferred and locked", ms[0].State, ms[0].LockedUntil, ms[0].LockToken)
		}
		s.must(r.CompleteMessage(s.ctx, ms[0], nil))
		s.wantBodies("left", s.peek(r))
	}},
	{name: "a deferred message can be deferred, abandoned and dead-lettered", check: func(s *scene) {
		r := s.receiver()
		number := s.deferOne(r, "x")
		s.must(r.DeferMessage(s.ctx, s.receiveDeferred(r, number)[0], &azservicebus.DeferMessageOptions{
			PropertiesToModify: map[string]any{"k": "v"},
		}))
		m := s.receiveDeferred(r, number)[0]
		if m.ApplicationProperties["k"] != "v" {
			s.Errorf("properties = %v, want k=v", m.ApplicationProperties)
		}
		s.must(r.AbandonMessage(s.ctx, m, nil))
		s.wantDeliverable("after abandon")
		s.must(r.DeadLetterMessage(s.ctx, s.receiveDeferred(r, number)[0], nil))
		s.wantBodies("dead-lettered", s.peek(s.deadLetters()), "x")
	}},
	{name: "one wrong number fails the whole call", check: func(s *scene) {
		r := s.receiver()
		number := s.deferOne(r, "x")
		_, err := r.ReceiveDeferredMessages(s.soon(), []int64{number, number + 1000}, nil)
		s.wantCode("ReceiveDeferredMessages", err, azservicebus.CodeNotFound)
		if want := "Failed to lock one or more specified messages. Either the message is already locked or does not exist."; err != nil &&
			!strings.Contains(err.Error(), want) {
			s.Errorf("ReceiveDeferredMessages = %v, want the sentence of the service", err)
		}
		s.wantBodies("afterwards", s.receiveDeferred(r, number), "x") // it was not locked
	}},
	{name: "a deferred message that is locked cannot be received", check: func(s *scene) {
		r := s.receiver()
		number := s.deferOne(r, "x")
		s.receiveDeferred(r, number)
		_, err := r.ReceiveDeferredMessages(s.soon(), []int64{number}, nil)
		s.wantCode("ReceiveDeferredMessages", err, azservicebus.CodeNotFound)
		s.lapse()
		s.wantBodies("after the lock lapsed", s.receiveDeferred(r, number), "x")
	}},
	{name: "a deferred message received for deletion is gone", check: func(s *scene) {
		number := s.deferOne(s.receiver(), "x")
		r := s.receiverOf(s.client, destructive)
		s.wantBodies("by number", s.receiveDeferred(r, number), "x")
		s.wantBodies("left", s.peek(r))
	}},
	{name: "an expired deferred message is noticed when it is asked for", queue: deadLettering, check: func(s *scene) {
		s.mortal(ttl, "x")
		r, d := s.receiver(), s.deadLetters()
		m := s.one(r)
		s.must(r.DeferMessage(s.ctx, m, nil))
		s.expire()
		s.wantDeliverable("after the time to live")
		s.wantBodies("left", s.peek(r), "x")
		_, err := r.ReceiveDeferredMessages(s.soon(), []int64{*m.SequenceNumber}, nil)
		s.wantCode("ReceiveDeferredMessages", err, azservicebus.CodeNotFound)
		s.wantBodies("dead-lettered", s.peek(d), "x")
	}},
}
