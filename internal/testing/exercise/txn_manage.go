// SPDX-License-Identifier: Apache-2.0

package exercise

import (
	"time"

	wire "overdue/internal/amqp"
	"overdue/internal/broker"
)

// A manager asks $management within transactions, as the Java and .NET SDKs do:
// the request's transfer bears the mark.
type manager struct {
	*txnClient
	requests uint32
}

const nodeReplies = "manager-replies"

func (c *txnClient) manager(entity string) *manager {
	c.Helper()
	handle := c.attach(&wire.Attach{
		Role: wire.RoleReceiver, SndSettleMode: wire.SndSettled,
		Source: &wire.Source{Address: entity + "/$management", HasAddress: true},
		Target: &wire.Target{Address: nodeReplies, HasAddress: true},
	})
	c.send(&wire.Flow{
		IncomingWindow: 1000, OutgoingWindow: 1000, HasHandle: true, Handle: handle,
		HasDeliveryCount: true, HasLinkCredit: true, LinkCredit: 100,
	}, nil)
	return &manager{c, c.to(entity+"/$management", nil)}
}

// ask sends a request within a transaction and returns the body of the response,
// which has to be good.
func (m *manager) ask(txn []byte, operation string, args wire.Map) wire.Reader {
	m.Helper()
	id := m.sent
	m.sent++
	m.send(&wire.Transfer{
		Handle: m.requests, DeliveryID: id, HasDeliveryID: true, DeliveryTag: []byte{byte(id)}, HasMessageFormat: true,
		State: &wire.TransactionalState{TxnID: txn},
	}, m.request(operation, args))
	var settled wire.DeliveryState
	var response []byte
	for settled == nil || response == nil {
		f, open := <-m.in
		if !open {
			m.Fatal("the connection has ended")
		}
		switch p := f.Performative.(type) {
		case *wire.Disposition:
			settled = p.State
		case *wire.Transfer:
			response = f.payload
		}
	}
	m.wantProvisional(settled, txn, wire.Accepted{})
	message, err := wire.ParseMessage(response)
	m.must(err)
	status, _ := wire.MapLookup(message.ApplicationProperties, "statusCode")
	if got := status.Integer(); got != 200 {
		reason, _ := wire.MapLookup(message.ApplicationProperties, "statusDescription")
		m.Fatalf("%s: status %d, %s; want 200", operation, got, reason.String())
	}
	body, _ := message.Value()
	return body
}

func (m *manager) request(operation string, args wire.Map) []byte {
	m.Helper()
	out := wire.AppendDescriptor(nil, wire.CodeProperties)
	out, start := wire.BeginList(out)
	out = wire.AppendString(out, "id")
	for range 3 { // user-id, to, subject
		out = wire.AppendNull(out)
	}
	out = wire.EndList(wire.AppendString(out, nodeReplies), start, 5)
	out = wire.AppendDescriptor(out, wire.CodeApplicationProperties)
	out, start = wire.BeginMap(out)
	out = wire.AppendString(out, "operation")
	out = wire.EndMap(wire.AppendString(out, "com.microsoft:"+operation), start, 1)
	body, err := wire.AppendValue(nil, args)
	m.must(err)
	return wire.AppendValueSection(out, body)
}

// schedule schedules one message within a transaction and returns its number.
func (m *manager) schedule(txn []byte, at time.Time, body string) int64 {
	m.Helper()
	message := wire.AppendDescriptor(nil, wire.CodeMessageAnnotations)
	message, start := wire.BeginMap(message)
	message = wire.AppendSymbol(message, "x-opt-scheduled-enqueue-time")
	message = wire.EndMap(wire.AppendTimestamp(message, wire.TimestampOf(at)), start, 1)
	message = wire.AppendData(message, []byte(body))
	r := m.ask(txn, "schedule-message", wire.Map{{Key: "messages", Value: wire.List{
		wire.Map{{Key: "message-id", Value: body}, {Key: "message", Value: message}},
	}}})
	numbers, ok := wire.MapLookup(r.Raw(), "sequence-numbers")
	elements, n := numbers.Array()
	if !ok || n != 1 {
		m.Fatalf("schedule-message gave %d numbers, want 1", n)
	}
	return elements.Integer()
}

var txnManageSpecs = []spec{
	{name: "a message is scheduled with the commit", check: func(s *scene) {
		at := s.now().Add(time.Minute)
		c := s.transactions()
		m := c.manager(s.queue)
		txn := c.declare()
		number := m.schedule(txn, at, "kept")
		lost := c.declare()
		m.schedule(lost, at, "lost")
		r := s.receiver()
		s.wantBodies("before", s.peek(r))
		c.commit(txn)
		c.rollback(lost)
		ms := s.peek(r)
		s.wantBodies("after", ms, "kept")
		if *ms[0].SequenceNumber != number {
			s.Errorf("sequence number = %d, want %d, as before the commit", *ms[0].SequenceNumber, number)
		}
		s.must(s.sender.CancelScheduledMessages(s.ctx, []int64{number}, nil))
		s.wantBodies("cancelled", s.peek(r))
	}},
	{name: "a scheduled message is cancelled with the commit", check: func(s *scene) {
		at := s.now().Add(time.Minute)
		numbers := s.schedule(at, "gone", "kept")
		c := s.transactions()
		m := c.manager(s.queue)
		txn, undone := c.declare(), c.declare()
		for id, number := range map[string]int64{string(txn): numbers[0], string(undone): numbers[1]} {
			m.ask([]byte(id), "cancel-scheduled-message", wire.Map{{Key: "sequence-numbers", Value: wire.Array{number}}})
		}
		r := s.receiver()
		s.wantBodies("before", s.peek(r), "gone", "kept")
		c.rollback(undone)
		c.commit(txn)
		s.wantBodies("after", s.peek(r), "kept")
	}},
	{name: "a lock token is settled with the commit", check: func(s *scene) {
		s.text("a")
		r := s.receiver()
		d := s.one(r)
		c := s.transactions()
		m := c.manager(s.queue)
		txn := c.declare()
		m.ask(txn, "update-disposition", wire.Map{
			{Key: "disposition-status", Value: "completed"}, {Key: "lock-tokens", Value: wire.Array{wire.UUID(d.LockToken)}},
		})
		s.wantBodies("before", s.peek(r), "a")
		c.commit(txn)
		s.wantBodies("after", s.peek(r))
	}},
	{name: "a queue that is deleted rolls a transaction back", check: func(s *scene) {
		other := s.another(broker.QueueConfig{})
		c := s.transactions()
		to, fro := c.to(s.queue, nil), c.to(other, nil)
		txn := c.declare()
		c.text(to, txn, "a")
		c.text(fro, txn, "b")
		s.target.DeleteQueue(s.T, other)
		c.wantRefused("commit", c.discharge(txn, false), wire.ErrCondTransactionRollback)
		s.wantBodies("left", s.peek(s.receiver()))
	}},
	{name: "a topic takes part in transactions", check: func(s *scene) {
		topic := s.topic(broker.TopicConfig{})
		s.subscribe(topic, broker.SubscriptionConfig{Name: "all"})
		subscription := s.subscribed(topic, "all", nil)
		c := s.transactions()
		to := c.to(topic, nil)
		txn := c.declare()
		c.text(to, txn, "a")
		s.wantBodies("before", s.peek(subscription))
		c.commit(txn)
		s.wantBodies("after", s.peek(subscription), "a")
	}},
	{name: "a session takes part in transactions", queue: broker.QueueConfig{RequiresSession: true}, check: func(s *scene) {
		c := s.transactions()
		to := c.to(s.queue, nil)
		txn := c.declare()
		c.wantRefused("a message without a session", c.transfer(to, txn, false, wire.AppendData(nil, []byte("x"))), wire.ErrCondNotAllowed)
		message := wire.AppendDescriptor(nil, wire.CodeProperties)
		message, start := wire.BeginList(message)
		for range 10 {
			message = wire.AppendNull(message)
		}
		message = wire.AppendData(wire.EndList(wire.AppendString(message, "s"), start, 11), []byte("a"))
		c.wantProvisional(c.transfer(to, txn, false, message), txn, wire.Accepted{})
		c.commit(txn)
		r, err := s.client.AcceptSessionForQueue(s.ctx, s.queue, "s", nil)
		s.must(err)
		ms, err := r.ReceiveMessages(s.ctx, 1, nil)
		s.must(err)
		s.wantBodies("received", ms, "a")
		s.must(r.CompleteMessage(s.ctx, ms[0], nil))
	}},
}
