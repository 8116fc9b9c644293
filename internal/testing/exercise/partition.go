// SPDX-License-Identifier: Apache-2.0

package exercise

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"overdue/internal/broker"
)

// partitionOf is where the number of a message says that it is.
func partitionOf(m *azservicebus.ReceivedMessage) int64 { return *m.SequenceNumber >> 48 }

var partitioned = broker.QueueConfig{EnablePartitioning: true}

// batch sends ms in one go.
func (s *scene) batch(to *azservicebus.Sender, ms ...*azservicebus.Message) error {
	s.Helper()
	b, err := to.NewMessageBatch(s.ctx, nil)
	s.must(err)
	for _, m := range ms {
		s.must(b.AddMessage(m, nil))
	}
	return to.SendMessageBatch(s.ctx, b, nil)
}

// wantBatches sends batches of two messages, at once and scheduled: with distinct partition keys, with
// one for the first message alone, and with the same. Those that are not taken fail with cond.
func (s *scene) wantBatches(what string, to *azservicebus.Sender, cond amqp.ErrCond, taken ...string) {
	s.Helper()
	for body, keys := range map[string][2]*string{"distinct": {new("a"), new("b")}, "half": {new("a"), nil}, "same": {new("a"), new("a")}} {
		ms := []*azservicebus.Message{{Body: []byte(body), PartitionKey: keys[0]}, {Body: []byte(body), PartitionKey: keys[1]}}
		sent := s.batch(to, ms...)
		_, scheduled := to.ScheduleMessages(s.ctx, ms, time.Now().Add(24*time.Hour), nil)
		if slices.Contains(taken, body) {
			s.must(errors.Join(sent, scheduled))
			continue
		}
		s.wantCondition(what+", partition keys: "+body, sent, cond)
		if scheduled == nil || !strings.Contains(scheduled.Error(), "distinct SessionId or PartitionKey") {
			s.Errorf("%s, scheduled, partition keys: %s = %v, want it refused", what, body, scheduled)
		}
	}
}

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
		sender := s.senderTo(first)
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
	{name: "one batch to a partitioned queue has one partition key", queue: partitioned, check: func(s *scene) {
		s.wantBatches("queue", s.sender, amqp.ErrCondNotAllowed, "same")
		r := s.receiver()
		s.wantBodies("of all of them", s.receive(r, 2), "same", "same")
		s.wantDeliverable("besides")
		if s.target.HTTP != nil {
			batch := `[{"Body":"1","BrokerProperties":{"PartitionKey":"a"}},{"Body":"2","BrokerProperties":{"PartitionKey":"b"}}]`
			s.rest.wantAnswer("a batch over REST", s.rest.call(http.MethodPost, s.rest.messages(), batch,
				"Content-Type", "application/vnd.microsoft.servicebus.json"), http.StatusBadRequest)
		}
	}},
	{name: "one batch to a partitioned topic has one partition key", check: func(s *scene) {
		topic := s.topics.topic(broker.TopicConfig{EnablePartitioning: true})
		s.topics.subscribe(topic, broker.SubscriptionConfig{Name: "a"})
		sender := s.senderTo(topic)
		s.wantBatches("topic", sender, amqp.ErrCondNotAllowed, "same")
		s.wantBodies("of all of them", s.receive(s.topics.subscribed(topic, "a", nil), 2), "same", "same")
	}},
	{name: "one batch to another queue has the partition keys that it likes", check: func(s *scene) {
		s.wantBatches("queue", s.sender, "", "distinct", "half", "same")
	}},
	{name: "one batch to a partitioned queue has one session", queue: broker.QueueConfig{RequiresSession: true, EnablePartitioning: true}, check: func(s *scene) {
		err := s.batch(s.sender, &azservicebus.Message{SessionID: new("a")}, &azservicebus.Message{SessionID: new("b")})
		s.wantCondition("two sessions", err, amqp.ErrCondNotAllowed)
		s.must(s.batch(s.sender, &azservicebus.Message{SessionID: new("a")}, &azservicebus.Message{SessionID: new("a"), PartitionKey: new("a")}))
	}},
	{name: "one batch to a partitioned queue that detects duplicates has one message-id", queue: broker.QueueConfig{
		RequiresDuplicateDetection: true, EnablePartitioning: true,
	}, check: func(s *scene) {
		named := func(id string, key *string) *azservicebus.Message {
			return &azservicebus.Message{MessageID: &id, PartitionKey: key}
		}
		s.wantCondition("two ids", s.batch(s.sender, named("a", nil), named("b", nil)), amqp.ErrCondNotAllowed)
		s.must(s.batch(s.sender, named("a", new("k")), named("b", new("k"))))
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
