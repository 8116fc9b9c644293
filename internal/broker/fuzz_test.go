// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"slices"
	"testing"
	"time"

	sdk "github.com/Azure/go-amqp"

	"overdue/internal/amqp"
	"overdue/internal/broker/message"
	"overdue/internal/broker/queue"
	"overdue/internal/servicebus/address"
)

// operationNames are the operations in an order that does not change, and one
// that does not exist.
func operationNames() []string {
	names := []string{"no such operation"}
	for name := range operations {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// fuzzBroker has a queue with a message in every state.
func fuzzBroker(t testing.TB) *Broker {
	t.Helper()
	b, err := New(Config{
		Queues: []QueueConfig{{Name: "q", MaxSize: 1 << 20}, {Name: "sessions", MaxSize: 1 << 20, RequiresSession: true}},
		Topics: []TopicSetup{{TopicConfig{Name: "t"}, []SubscriptionSetup{{SubscriptionConfig: SubscriptionConfig{Name: "s"}}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	q, _ := b.Queue("q")
	body := queue.Message{Body: encode(t, sdk.NewMessage([]byte("x")))}
	later := body
	later.ScheduledEnqueueTime = time.Now().Add(time.Hour)
	if _, err := q.Send(body, body, body, later); err != nil {
		t.Fatal(err)
	}
	c := q.NewConsumer(queue.PeekLock)
	c.AddCredit(2)
	ds, _, _ := c.Take(nil)
	c.Close()
	if err := q.Settle(queue.Settlement{Outcome: queue.Defer}, ds[0].LockToken); err != nil {
		t.Fatal(err)
	}
	sessions, _ := b.Queue("sessions")
	body.SessionID, body.HasSession = "a", true
	if _, err := sessions.Send(body, body); err != nil {
		t.Fatal(err)
	}
	if _, err := sessions.Sessions().Accept("a"); err != nil {
		t.Fatal(err)
	}
	return b
}

// respond is what the client gets for a request with this body, as go-amqp
// reads it.
func respond(t testing.TB, answer answerer, operation string, body []byte) *sdk.Message {
	t.Helper()
	properties, err := amqp.AppendValue(nil, amqp.Map{{Key: "operation", Value: operation}, {Key: "name", Value: "amqp://host/Q/$management"}})
	if err != nil {
		t.Fatal(err)
	}
	message := amqp.Message{
		Properties:            (&amqp.Properties{MessageID: "id", ReplyTo: new("me")}).Raw(),
		ApplicationProperties: properties,
	}
	payload := message.Append(nil)
	req, refusal := readRequest(append(amqp.AppendDescriptor(payload, amqp.CodeAMQPValue), body...))
	if refusal != nil {
		return nil
	}
	res := answer(req)
	encoded := res.append(nil, req.replyTo, req.messageID)
	var m sdk.Message
	if err := m.UnmarshalBinary(encoded); err != nil {
		t.Fatalf("%s: go-amqp cannot read the response %x: %v", operation, encoded, err)
	}
	return &m
}

func FuzzManagement(f *testing.F) {
	token := amqp.UUID{1}
	scheduled := encode(f, &sdk.Message{Annotations: sdk.Annotations{message.AnnScheduledEnqueueTime: time.Now().Add(time.Hour)}})
	for _, body := range []amqp.Map{
		{{Key: "from-sequence-number", Value: int64(1)}, {Key: "message-count", Value: int32(10)}},
		{{Key: "messages", Value: amqp.List{amqp.Map{{Key: "message", Value: scheduled}}}}},
		{{Key: "sequence-numbers", Value: amqp.Array{int64(1), int64(4)}}, {Key: "receiver-settle-mode", Value: uint32(1)}},
		{{Key: "lock-tokens", Value: amqp.Array{token}}, {Key: "disposition-status", Value: "suspended"},
			{Key: "properties-to-modify", Value: amqp.Map{{Key: "k", Value: "v"}}}},
		{{Key: "session-id", Value: "a"}, {Key: "session-state", Value: []byte("s")}, {Key: "last-updated-time", Value: amqp.Timestamp(253402300800000)},
			{Key: "skip", Value: int32(0)}, {Key: "top", Value: int32(100)}},
		{{Key: "session-id", Value: "a"}, {Key: "from-sequence-number", Value: int64(1)}, {Key: "message-count", Value: int32(10)}},
		{{Key: "rule-name", Value: "r"}, {Key: "top", Value: int32(1)}, {Key: "rule-description", Value: amqp.Map{
			{Key: "sql-filter", Value: amqp.Map{{Key: "expression", Value: "a = 1"}}}, {Key: "sql-rule-action", Value: "SET a = 1"}}}},
		{{Key: "rule-name", Value: "r"}, {Key: "rule-description", Value: amqp.Described{Descriptor: codeRuleDescription, Value: amqp.List{
			amqp.Described{Descriptor: codeCorrelationFilter, Value: amqp.List{"c"}}, nil, "r"}}}},
	} {
		raw, err := amqp.AppendValue(nil, body)
		if err != nil {
			f.Fatal(err)
		}
		for i := range operationNames() {
			f.Add(uint8(i), []byte(raw))
		}
	}
	names := operationNames()
	f.Fuzz(func(t *testing.T, operation uint8, body []byte) {
		b := fuzzBroker(t)
		defer b.Close()
		name := names[int(operation)%len(names)]
		for _, node := range []address.Address{
			{Name: "q", Node: address.Management}, {Name: "q", SubQueue: address.DeadLetter, Node: address.Management}, {Name: "t", Subscription: "s", Node: address.Management},
			{Name: "sessions", Node: address.Management},
		} {
			m := respond(t, management{b.Default(), node, new(transactions)}.answer, name, body)
			if m == nil {
				return // no message, which the link refuses
			}
			status, _ := m.ApplicationProperties["statusCode"].(int32)
			_, condition := m.ApplicationProperties["errorCondition"]
			explained := condition == (status >= 300) || condition && status == statusNoContent
			if status < 200 || status == statusInternal || !explained || m.Properties.CorrelationID != "id" {
				t.Errorf("%s: response %+v with %+v", name, m.ApplicationProperties, m.Properties)
			}
		}
		// All other clients can go on after any input.
		q, _ := b.Queue("q")
		for _, v := range seen(q.Peek(nil, 0, 1000)) {
			if _, err := message.Append(nil, &v, message.Overlay{}); err != nil {
				t.Errorf("%s left a message that cannot be delivered: %v", name, err)
			}
		}
	})
}

func FuzzCBS(f *testing.F) {
	token, err := amqp.AppendValue(nil, "SharedAccessSignature sr=x&sig=y&se=1&skn=z")
	if err != nil {
		f.Fatal(err)
	}
	f.Add("put-token", []byte(token))
	f.Add("put-token", []byte{0x40})
	f.Add("delete-token", []byte{0xc1, 0xff})
	b := fuzzBroker(f)
	f.Cleanup(func() { _ = b.Close() })
	secured, err := New(Config{AutoCreate: true, Keys: []AuthorizationRule{{KeyName: "k", PrimaryKey: "a key that nobody has", Manage: true}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = secured.Close() })
	f.Fuzz(func(t *testing.T, operation string, body []byte) {
		for _, b := range []*Broker{b, secured} {
			c := &conn{b: b, ns: b.Default(), access: access{b: b}, replies: replies{}}
			m := respond(t, c.putToken, operation, body)
			if m == nil {
				return
			}
			status, ok := m.ApplicationProperties["status-code"].(int32)
			if want := operation == "put-token" && b != secured; !ok || (status == statusAccepted) != want {
				t.Errorf("%q: status-code %v, accepted should be %v", operation, m.ApplicationProperties["status-code"], want)
			}
		}
	})
}

// FuzzMessage: what a sender may store, every receiver can have.
func FuzzMessage(f *testing.F) {
	f.Add(encode(f, &sdk.Message{
		Header:                &sdk.MessageHeader{TTL: time.Minute},
		Annotations:           sdk.Annotations{message.AnnSequenceNumber: int64(1), "x": "y"},
		Properties:            &sdk.MessageProperties{MessageID: "id", GroupID: new("s")},
		ApplicationProperties: map[string]any{"k": "v"},
		Value:                 "v",
	}))
	f.Fuzz(func(t *testing.T, encoded []byte) {
		m, refusal := message.Read(encoded)
		if refusal != nil {
			return
		}
		v := queue.View{Message: m, SequenceNumber: 1, EnqueuedTime: time.Now(), ExpiresAt: time.Now()}
		v.Properties = []queue.Property{{Key: "k", Value: "w"}}
		out, err := message.Append(nil, &v, message.Overlay{Lock: queue.LockToken{1}, Until: time.Now()})
		if err != nil {
			t.Fatalf("taken, but cannot be delivered: %v", err)
		}
		again, refusal := message.Read(out)
		if refusal != nil {
			t.Fatalf("delivered as %x, which is refused: %v", out, refusal)
		}
		if again.MessageID != m.MessageID || again.SessionID != m.SessionID || !again.ScheduledEnqueueTime.Equal(m.ScheduledEnqueueTime) {
			t.Errorf("resent as %+v, was %+v", again, m)
		}
	})
}
