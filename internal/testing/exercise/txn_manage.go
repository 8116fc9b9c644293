// SPDX-License-Identifier: Apache-2.0

package exercise

import (
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

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
	status, reason, body := m.answer(txn, operation, args)
	if status != 200 {
		m.Fatalf("%s: status %d, %s; want 200", operation, status, reason)
	}
	return body
}

// wantStatus asks and expects a refusal.
func (m *manager) wantStatus(want int64, txn []byte, operation string, args wire.Map) {
	m.Helper()
	if status, reason, _ := m.answer(txn, operation, args); status != want {
		m.Errorf("%s: status %d, %s; want %d", operation, status, reason, want)
	}
}

func (m *manager) answer(txn []byte, operation string, args wire.Map) (status int64, reason string, body wire.Reader) {
	m.Helper()
	id := m.sent
	m.sent++
	m.send(&wire.Transfer{
		Handle: m.requests, DeliveryID: id, HasDeliveryID: true, DeliveryTag: []byte{byte(id)}, HasMessageFormat: true,
		State: &wire.TransactionalState{TxnID: txn},
	}, m.request(operation, args))
	var settled wire.DeliveryState
	var response []byte
	for whole := false; settled == nil || !whole; {
		f, open := <-m.in
		if !open {
			m.Fatal("the connection has ended")
		}
		switch p := f.Performative.(type) {
		case *wire.Disposition:
			settled = p.State
		case *wire.Transfer:
			response = append(response, f.payload...)
			whole = !p.More
		}
	}
	m.wantProvisional(settled, txn, wire.Accepted{})
	message, err := wire.ParseMessage(response)
	m.must(err)
	code, _ := wire.MapLookup(message.ApplicationProperties, "statusCode")
	words, _ := wire.MapLookup(message.ApplicationProperties, "statusDescription")
	body, _ = message.Value()
	return code.Integer(), words.String(), body
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

// annotated is the annotations of a message that is scheduled.
func annotated(at time.Time) []byte {
	out := wire.AppendDescriptor(nil, wire.CodeMessageAnnotations)
	out, start := wire.BeginMap(out)
	out = wire.AppendSymbol(out, "x-opt-scheduled-enqueue-time")
	return wire.EndMap(wire.AppendTimestamp(out, wire.TimestampOf(at)), start, 1)
}

// schedule schedules one message within a transaction and returns its number.
func (m *manager) schedule(txn []byte, at time.Time, body string) int64 {
	m.Helper()
	message := wire.AppendData(annotated(at), []byte(body))
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
	{name: "what cannot be rolled back takes no part in a transaction", check: func(s *scene) {
		at := s.now().Add(time.Minute)
		s.text("a")
		other := s.another(broker.QueueConfig{})
		c := s.transactions()
		m := c.manager(s.queue)
		elsewhere := c.manager(other)
		txn := c.declare()
		number := m.schedule(txn, at, "b")
		m.wantStatus(400, txn, "batch-delete-messages", wire.Map{{Key: "message-count", Value: int32(1)}})
		m.wantStatus(400, txn, "receive-by-sequence-number", wire.Map{
			{Key: "sequence-numbers", Value: wire.Array{number}}, {Key: "receiver-settle-mode", Value: uint32(0)},
		})
		elsewhere.wantStatus(400, txn, "schedule-message", wire.Map{{Key: "messages", Value: wire.List{
			wire.Map{{Key: "message", Value: wire.AppendData(annotated(at), []byte("c"))}},
		}}})
		// A request that only looks is answered at once.
		m.ask(txn, "peek-message", wire.Map{{Key: "from-sequence-number", Value: int64(0)}, {Key: "message-count", Value: int32(9)}})
		c.rollback(txn)
		s.wantBodies("left", s.peek(s.receiver()), "a")
	}},
	{name: "a second cancel is refused while the first is under way", check: func(s *scene) {
		numbers := s.schedule(s.now().Add(time.Minute), "a")
		c := s.transactions()
		m := c.manager(s.queue)
		txn := c.declare()
		cancel := wire.Map{{Key: "sequence-numbers", Value: wire.Array{numbers[0]}}}
		m.ask(txn, "cancel-scheduled-message", cancel)
		m.wantStatus(400, txn, "cancel-scheduled-message", cancel)
		c.commit(txn)
		s.wantBodies("left", s.peek(s.receiver()))
	}},
	{name: "after a rollback the link of a session settles again", queue: broker.QueueConfig{RequiresSession: true}, check: func(s *scene) {
		session := "s"
		s.send(&azservicebus.Message{SessionID: &session, Body: []byte("a")})
		c := s.transactions()
		c.fromSession(s.queue, session)
		id := c.next()
		undone := c.declare()
		c.accept(undone, id)
		c.rollback(undone)
		txn := c.declare()
		c.accept(txn, id)
		c.commit(txn)
		d, _ := await(c, func(d *wire.Disposition) bool { return d.Role == wire.RoleSender && d.First == id })
		if d.State != (wire.Accepted{}) || !d.Settled {
			s.Errorf("after the commit: %s, want accepted and settled", wire.Trace(d, 0))
		}
		const nothing = 204
		c.manager(s.queue).wantStatus(nothing, c.declare(), "peek-message",
			wire.Map{{Key: "from-sequence-number", Value: int64(0)}, {Key: "message-count", Value: int32(1)}})
	}},
	{name: "the state of a session is set with the commit", queue: broker.QueueConfig{RequiresSession: true}, check: func(s *scene) {
		r, err := s.client.AcceptSessionForQueue(s.ctx, s.queue, "s", nil)
		s.must(err)
		c := s.transactions()
		m := c.manager(s.queue)
		want := func(what, want string) {
			s.Helper()
			if got, err := r.GetSessionState(s.ctx, nil); err != nil || string(got) != want {
				s.Errorf("state %s = %q, %v, want %q", what, got, err, want)
			}
		}
		set := func(txn []byte, state string) {
			s.Helper()
			m.ask(txn, "set-session-state", wire.Map{{Key: "session-id", Value: "s"}, {Key: "session-state", Value: []byte(state)}})
		}
		undone, txn := c.declare(), c.declare()
		set(undone, "undone")
		set(txn, "first")
		set(txn, "kept")
		want("before", "")
		c.rollback(undone)
		want("after a rollback", "")
		c.commit(txn)
		want("after the commit", "kept")
	}},
	{name: "a topic takes part in transactions", check: func(s *scene) {
		topic := s.topics.topic(broker.TopicConfig{})
		s.topics.subscribe(topic, broker.SubscriptionConfig{Name: "all"})
		subscription := s.topics.subscribed(topic, "all", nil)
		c := s.transactions()
		to := c.to(topic, nil)
		txn := c.declare()
		c.text(to, txn, "a")
		s.wantBodies("before", s.peek(subscription))
		c.commit(txn)
		s.wantBodies("after", s.peek(subscription), "a")
	}},
	{name: "a session takes part in transactions", queue: broker.QueueConfig{RequiresSession: true}, check: func(s *scene) {
		c, to, txn := s.sending()
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
