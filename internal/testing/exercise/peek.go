// SPDX-License-Identifier: Apache-2.0

package exercise

import (
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
)

var peekSpecs = []spec{
	{name: "an empty queue has nothing to peek", check: func(s *scene) {
		ms, err := s.receiver().PeekMessages(s.ctx, 10, nil)
		s.must(err)
		s.wantBodies("peeked", ms)
	}},
	{name: "a page has at most 250 messages and the next one goes on", check: func(s *scene) {
		const n = 600
		for base := 0; base < n; base += 100 {
			batch, err := s.sender.NewMessageBatch(s.ctx, nil)
			s.must(err)
			for i := range 100 {
				s.must(batch.AddMessage(&azservicebus.Message{Body: fmt.Append(nil, base+i)}, nil))
			}
			s.must(s.sender.SendMessageBatch(s.ctx, batch, nil))
		}
		r := s.receiver()
		next := 0
		for _, want := range []int{250, 250, 100, 0} {
			page, err := r.PeekMessages(s.ctx, 1000, nil)
			s.must(err)
			if len(page) != want {
				s.Fatalf("page of %d messages, want %d", len(page), want)
			}
			for _, m := range page {
				if got, want := string(m.Body), fmt.Sprint(next); got != want {
					s.Fatalf("message %d = %s", next, got)
				}
				next++
			}
		}
	}},
	{name: "a page ends where it would get too large", check: func(s *scene) {
		const n, size = 12, 100_000
		want := make([]string, n)
		for i := range n {
			want[i] = fmt.Sprintf("%*d", size, i)
			s.text(want[i])
		}
		s.wantBodies("peeked", s.peek(s.receiver()), want...)
	}},
	{name: "peeking starts at a number and skips gaps", check: func(s *scene) {
		s.text("a", "b", "c", "d")
		r := s.receiver()
		all := s.peek(r)
		for range 2 {
			s.must(r.CompleteMessage(s.ctx, s.one(r), nil)) // a, b
		}
		for i, want := range []string{"c", "c", "c", "d"} {
			ms, err := r.PeekMessages(s.ctx, 1, &azservicebus.PeekMessagesOptions{FromSequenceNumber: all[i].SequenceNumber})
			s.must(err)
			s.wantBodies(fmt.Sprintf("from number %d", i), ms, want)
		}
	}},
	{name: "a peek sees waiting, locked, deferred and scheduled messages", check: func(s *scene) {
		at := s.now().Add(soonest)
		s.text("deferred", "locked", "waiting")
		s.schedule(at, "scheduled")
		r := s.receiver()
		ms := s.receive(r, 2)
		s.must(r.DeferMessage(s.ctx, ms[0], nil))
		peeked := s.peek(r)
		s.wantBodies("peeked", peeked, "deferred", "locked", "waiting", "scheduled")
		for i, want := range []azservicebus.MessageState{
			azservicebus.MessageStateDeferred, azservicebus.MessageStateActive,
			azservicebus.MessageStateActive, azservicebus.MessageStateScheduled,
		} {
			if got := peeked[i].State; got != want {
				s.Errorf("state of %s = %d, want %d", peeked[i].Body, got, want)
			}
		}
	}},
	{name: "a peek that leaves out bodies shows none", check: func(s *scene) {
		s.text("x")
		_, answer := s.manage(s.queue, "peek-message", map[string]any{
			"from-sequence-number": int64(1), "message-count": int32(1), "omit-message-body": true,
		})
		body, _ := answer.Value.(map[string]any)
		list, _ := body["messages"].([]any)
		if len(list) != 1 {
			s.Fatalf("peeked %v, want one message", answer.Value)
		}
		entry, _ := list[0].(map[string]any)
		encoded, _ := entry["message"].([]byte)
		var m amqp.Message
		s.must(m.UnmarshalBinary(encoded))
		if m.Data != nil || m.Value != nil || m.Sequence != nil || m.Annotations["x-opt-sequence-number"] == nil {
			s.Errorf("peeked %+v, want annotations and no section for a body", m)
		}
	}},
	{name: "the dead-letter queue is peeked on its own", check: func(s *scene) {
		s.text("dead", "live")
		r := s.receiver()
		s.must(r.DeadLetterMessage(s.ctx, s.one(r), nil))
		s.wantBodies("queue", s.peek(r), "live")
		s.wantBodies("dead-letter queue", s.peek(s.deadLetters()), "dead")
	}},
}
