// SPDX-License-Identifier: Apache-2.0

package exercise

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

var destructive = &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete}

var receiveSpecs = []spec{
	{name: "a locked message carries its lock", check: func(s *scene) {
		s.text("x")
		m := s.one(s.receiver())
		if m.LockToken == [16]byte{} {
			s.Error("lock token is zero")
		}
		if m.RawAMQPMessage.DeliveryAnnotations["x-opt-lock-token"] == nil {
			s.Error("delivery annotation x-opt-lock-token is missing")
		}
		locked := m.LockedUntil.Sub(*m.EnqueuedTime)
		if slack := 20 * time.Second; locked < s.target.LockDuration || locked > s.target.LockDuration+slack {
			s.Errorf("locked until %v after enqueuing, want %v", locked, s.target.LockDuration)
		}
		if m.State != azservicebus.MessageStateActive || m.SequenceNumber == nil {
			s.Errorf("state %d, sequence number %v; want active and a number", m.State, m.SequenceNumber)
		}
	}},
	{name: "a message goes to one of two receivers", check: func(s *scene) {
		s.text("a", "b")
		one, two := s.receiver(), s.receiver()
		first, second := s.one(one), s.one(two)
		s.wantBodies("both", []*azservicebus.ReceivedMessage{first, second}, "a", "b")
	}},
	{name: "an open receiver gets what is sent later", check: func(s *scene) {
		r := s.receiver()
		got := make(chan *azservicebus.ReceivedMessage)
		go func() {
			ms, err := r.ReceiveMessages(s.ctx, 1, nil)
			if err != nil || len(ms) == 0 {
				s.Errorf("ReceiveMessages = %d messages, %v", len(ms), err)
				close(got)
				return
			}
			got <- ms[0]
		}()
		s.text("late")
		if m := <-got; m != nil && string(m.Body) != "late" {
			s.Errorf("received %q, want late", m.Body)
		}
	}},
	{name: "receive and delete removes what it gives", check: func(s *scene) {
		s.text("a", "b", "c")
		r := s.receiverOf(s.client, destructive)
		ms := s.receive(r, 2)
		s.wantBodies("received", ms, "a", "b")
		if ms[0].LockedUntil != nil {
			s.Errorf("locked until %v, want no lock", ms[0].LockedUntil)
		}
		s.wantBodies("left", s.peek(r), "c")
		s.lapse()
		s.wantBodies("left after a lock duration", s.peek(r), "c")
	}},
	{name: "receive and delete with more credit than messages loses none", check: func(s *scene) {
		r := s.receiverOf(s.client, destructive)
		s.text("a")
		s.wantBodies("first", s.receive(r, 1), "a")
		ctx, cancel := context.WithTimeout(s.ctx, 100*time.Millisecond)
		defer cancel()
		if ms, err := r.ReceiveMessages(ctx, 50, nil); !errors.Is(err, context.DeadlineExceeded) {
			s.Fatalf("ReceiveMessages on an empty queue = %d messages, %v; want DeadlineExceeded", len(ms), err)
		}
		s.text("b", "c") // the credit of before takes them, the SDK keeps them
		s.wantBodies("then", s.receive(r, 2), "b", "c")
	}},
	{name: "what a cancelled receive was too late for is given back", check: func(s *scene) {
		r := s.receiver()
		s.must(func() error { _, err := r.PeekMessages(s.ctx, 1, nil); return err }()) // the link is up
		cancelled, cancel := context.WithCancel(s.ctx)
		cancel()
		if _, err := r.ReceiveMessages(cancelled, 10, nil); !errors.Is(err, context.Canceled) {
			s.Fatalf("ReceiveMessages = %v, want Canceled", err)
		}
		// The credit of that call is still out: the SDK takes and releases until
		// it is used up.
		s.text("x")
		s.wantCount("after the releases", s.one(s.receiver()), 1)
	}},
	{name: "a thousand messages arrive once each and in order", check: func(s *scene) {
		const n = 1000
		for base := 0; base < n; base += 100 {
			batch, err := s.sender.NewMessageBatch(s.ctx, nil)
			s.must(err)
			for i := range 100 {
				s.must(batch.AddMessage(&azservicebus.Message{Body: fmt.Append(nil, base+i)}, nil))
			}
			s.must(s.sender.SendMessageBatch(s.ctx, batch, nil))
		}
		r := s.receiver()
		for i, m := range s.receive(r, n) {
			if want := fmt.Sprint(i); string(m.Body) != want {
				s.Fatalf("message %d = %s, want %s", i, m.Body, want)
			}
			s.must(r.CompleteMessage(s.ctx, m, nil))
		}
		s.wantBodies("left", s.peek(r))
	}},
}
