// SPDX-License-Identifier: Apache-2.0

package exercise

import (
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/broker"
)

// window is how long the queues of these cases know a message.
const window = 20 * time.Second

var detecting = broker.QueueConfig{RequiresDuplicateDetection: true, DuplicateDetectionHistoryTimeWindow: window}

// named sends messages of one name.
func (s *scene) named(id string, bodies ...string) {
	s.Helper()
	for _, b := range bodies {
		s.send(&azservicebus.Message{MessageID: &id, Body: []byte(b)})
	}
}

var duplicateSpecs = []spec{
	{name: "a duplicate is accepted and dropped", queue: detecting, check: func(s *scene) {
		s.named("x", "first", "second")
		s.named("y", "third")
		s.wantBodies("peeked", s.peek(s.receiver()), "first", "third")
	}},
	{name: "a message is known after it has been received", queue: detecting, check: func(s *scene) {
		s.named("x", "first")
		r := s.receiverOf(s.client, destructive)
		s.one(r)
		s.must(r.Close(s.ctx))
		s.named("x", "second")
		s.wantBodies("peeked", s.peek(s.receiver()))
	}},
	{name: "the window counts from the first message", queue: detecting, check: func(s *scene) {
		s.named("x", "first")
		s.target.Wait(window - 5*time.Second)
		s.named("x", "second")
		s.target.Wait(10 * time.Second)
		s.named("x", "third")
		s.wantBodies("peeked", s.peek(s.receiver()), "first", "third")
	}},
	{name: "a batch can hold duplicates", queue: detecting, check: func(s *scene) {
		batch, err := s.sender.NewMessageBatch(s.ctx, nil)
		s.must(err)
		for _, m := range []struct{ id, body string }{{"x", "first"}, {"y", "second"}, {"x", "third"}} {
			s.must(batch.AddMessage(&azservicebus.Message{MessageID: &m.id, Body: []byte(m.body)}, nil))
		}
		s.must(s.sender.SendMessageBatch(s.ctx, batch, nil))
		s.wantBodies("peeked", s.peek(s.receiver()), "first", "second")
	}},
	{name: "a scheduled message is known from when it is scheduled", queue: detecting, check: func(s *scene) {
		id := "x"
		at := s.now().Add(window / 2)
		_, err := s.sender.ScheduleMessages(s.ctx, []*azservicebus.Message{{MessageID: &id, Body: []byte("first")}}, at, nil)
		s.must(err)
		s.named(id, "second")
		s.target.Wait(window/2 + time.Second)
		s.wantBodies("peeked", s.peek(s.receiver()), "first")
	}},
	{name: "messages without a name are no duplicates", queue: detecting, check: func(s *scene) {
		s.text("first", "second")
		s.wantBodies("peeked", s.peek(s.receiver()), "first", "second")
	}},
	{name: "without detection nothing is dropped", check: func(s *scene) {
		s.named("x", "first", "second")
		s.wantBodies("peeked", s.peek(s.receiver()), "first", "second")
	}},
	{name: "in a partitioned queue the partition key tells messages apart", queue: broker.QueueConfig{
		RequiresDuplicateDetection: true, EnablePartitioning: true,
	}, check: func(s *scene) {
		id := "x"
		for _, m := range []struct{ key, body string }{{"a", "first"}, {"b", "second"}, {"a", "third"}} {
			s.send(&azservicebus.Message{MessageID: &id, PartitionKey: &m.key, Body: []byte(m.body)})
		}
		seen := map[string]bool{}
		for _, m := range s.receive(s.receiver(), 2) {
			seen[string(m.Body)] = true
			if *m.SequenceNumber>>48 == 0 {
				s.Errorf("sequence number %#x of %q names no partition", *m.SequenceNumber, m.Body)
			}
		}
		if !seen["first"] || !seen["second"] {
			s.Errorf("received %v, want first and second", seen)
		}
	}},
}
