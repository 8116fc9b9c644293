// SPDX-License-Identifier: Apache-2.0

package exercise

import (
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/broker"
)

// partitionOf is where the number of a message says that it is.
func partitionOf(m *azservicebus.ReceivedMessage) int64 { return *m.SequenceNumber >> 48 }

var partitioned = broker.QueueConfig{EnablePartitioning: true}

var partitionSpecs = []spec{
	{name: "a partition key keeps messages in one partition", queue: partitioned, check: func(s *scene) {
		key := "k"
		for i := range 20 {
			m := &azservicebus.Message{Body: fmt.Append(nil, i)}
			if i%2 == 0 {
				m.PartitionKey = &key
			}
			s.send(m)
		}
		var keyed []*azservicebus.ReceivedMessage
		all := map[int64]bool{}
		for _, m := range s.receive(s.receiver(), 20) {
			if all[partitionOf(m)] = true; m.PartitionKey != nil {
				keyed = append(keyed, m)
			}
		}
		if len(keyed) != 10 || len(all) < 2 {
			s.Fatalf("%d messages with a key, %d partitions; want 10 and several", len(keyed), len(all))
		}
		last := int64(0)
		for _, m := range keyed {
			if partitionOf(m) != partitionOf(keyed[0]) || *m.SequenceNumber <= last {
				s.Errorf("%q: number %#x after %#x, want it higher in the same partition", m.Body, *m.SequenceNumber, last)
			}
			last = *m.SequenceNumber
		}
	}},
	{name: "a partition key counts where a message is forwarded, too", queue: partitioned, check: func(s *scene) {
		first := s.another(broker.QueueConfig{ForwardTo: s.queue})
		sender, err := s.client.NewSender(first, nil)
		s.must(err)
		key := "k"
		for range 5 {
			s.must(sender.SendMessage(s.ctx, &azservicebus.Message{PartitionKey: &key}, nil))
		}
		ms := s.receive(s.receiver(), 5)
		for _, m := range ms {
			if partitionOf(m) != partitionOf(ms[0]) {
				s.Errorf("messages with one key are in partitions %d and %d", partitionOf(m), partitionOf(ms[0]))
			}
		}
	}},
	{name: "a partitioned queue is peeked by number", queue: partitioned, check: func(s *scene) {
		for i := range 20 {
			s.text(fmt.Sprint(i))
		}
		ms := s.peek(s.receiver())
		last := int64(0)
		for _, m := range ms {
			if *m.SequenceNumber <= last {
				s.Errorf("%q: number %#x after %#x, want rising numbers", m.Body, *m.SequenceNumber, last)
			}
			last = *m.SequenceNumber
		}
		if len(ms) != 20 {
			s.Errorf("%d messages peeked, want 20", len(ms))
		}
	}},
	{name: "a scheduled message of a partitioned queue is cancelled by its number", queue: partitioned, check: func(s *scene) {
		at := s.now().Add(time.Hour)
		numbers := s.schedule(at, "a", "b", "c")
		s.must(s.sender.CancelScheduledMessages(s.ctx, numbers[1:2], nil))
		left := map[string]bool{}
		for _, m := range s.peek(s.receiver()) {
			left[string(m.Body)] = true
		}
		if len(left) != 2 || !left["a"] || !left["c"] {
			s.Errorf("left: %v, want a and c", left)
		}
	}},
	{name: "a deferred message of a partitioned queue is received by its number", queue: partitioned, check: func(s *scene) {
		r := s.receiver()
		number := s.deferOne(r, "a")
		s.text("b")
		s.wantBodies("by number", s.receiveDeferred(r, number), "a")
	}},
}
