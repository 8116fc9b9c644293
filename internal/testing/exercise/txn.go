// SPDX-License-Identifier: Apache-2.0

package exercise

import (
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	wire "overdue/internal/amqp"
	"overdue/internal/broker"
)

// second makes one more queue and returns its name and a receiver on it.
func (s *scene) second() (string, *azservicebus.Receiver) {
	s.Helper()
	name := s.another(broker.QueueConfig{})
	r, err := s.client.NewReceiverForQueue(name, nil)
	s.must(err)
	return name, r
}

var txnSpecs = []spec{
	{name: "what is sent appears with the commit", check: func(s *scene) {
		c, to, txn := s.sending()
		c.text(to, txn, "a", "b")
		s.wantBodies("before", s.peek(s.receiver()))
		s.text("c") // outside
		c.commit(txn)
		s.wantBodies("after", s.peek(s.receiver()), "c", "a", "b")
		s.wantDeliverable("after", "c", "a", "b")
	}},
	{name: "what is sent and rolled back never appears", check: func(s *scene) {
		c, to, txn := s.sending()
		c.text(to, txn, "a")
		c.rollback(txn)
		s.text("b")
		s.wantBodies("after", s.peek(s.receiver()), "b")
	}},
	{name: "several queues take part in one transaction", check: func(s *scene) {
		other, otherReceiver := s.second()
		s.text("work")
		c, id := s.holding()
		to := c.to(other, nil)
		txn := c.declare()
		c.text(to, txn, "result")
		c.accept(txn, id)
		s.wantBodies("the work before", s.peek(s.receiver()), "work")
		s.wantBodies("the result before", s.peek(otherReceiver))
		c.commit(txn)
		s.wantBodies("the work after", s.peek(s.receiver()))
		s.wantBodies("the result after", s.peek(otherReceiver), "result")
	}},
	{name: "every outcome waits for the commit", check: func(s *scene) {
		s.text("a", "b", "c", "d", "e")
		c := s.transactions()
		c.from(s.queue)
		ids := make([]uint32, 5)
		for i := range ids {
			ids[i] = c.next()
		}
		txn := c.declare()
		properties := wire.Map{{Key: wire.Symbol("k"), Value: "v"}}
		for i, outcome := range []wire.DeliveryState{
			wire.Accepted{},
			&wire.Modified{MessageAnnotations: properties},
			&wire.Modified{UndeliverableHere: true, MessageAnnotations: properties},
			&wire.Rejected{Error: &wire.Error{Condition: "com.microsoft:dead-letter", Info: wire.Map{
				{Key: wire.Symbol("DeadLetterReason"), Value: "r"}, {Key: wire.Symbol("DeadLetterErrorDescription"), Value: "d"},
			}}},
			wire.Released{},
		} {
			answer := outcome
			switch outcome := outcome.(type) {
			case *wire.Modified:
				answer = &wire.Modified{UndeliverableHere: outcome.UndeliverableHere}
			case *wire.Rejected:
				answer = &wire.Rejected{}
			}
			c.wantProvisional(c.dispose(txn, ids[i], outcome), txn, answer)
		}
		for _, m := range s.peek(s.receiver()) {
			if m.State != azservicebus.MessageStateActive || m.ApplicationProperties["k"] != nil || m.DeliveryCount != 1 {
				s.Errorf("%q before the commit: state %d, properties %v, delivery count %d; want it as it was",
					m.Body, m.State, m.ApplicationProperties, m.DeliveryCount)
			}
		}
		s.wantBodies("dead-lettered before", s.peek(s.deadLetters()))
	}},
	{name: "outcomes take effect with the commit", check: func(s *scene) {
		s.text("a", "b", "c")
		c := s.transactions()
		c.from(s.queue)
		a, b, d := c.next(), c.next(), c.next()
		txn := c.declare()
		c.accept(txn, a)
		deferral := &wire.Modified{UndeliverableHere: true}
		c.wantProvisional(c.dispose(txn, b, deferral), txn, deferral)
		c.wantProvisional(c.dispose(txn, d, &wire.Rejected{Error: &wire.Error{Condition: "com.microsoft:dead-letter", Info: wire.Map{
			{Key: wire.Symbol("DeadLetterReason"), Value: "why"},
		}}}), txn, &wire.Rejected{})
		c.commit(txn)
		ms := s.peek(s.receiver())
		s.wantBodies("left", ms, "b")
		if ms[0].State != azservicebus.MessageStateDeferred {
			s.Errorf("state = %d, want deferred", ms[0].State)
		}
		dead := s.peek(s.deadLetters())
		s.wantBodies("dead-lettered", dead, "c")
		if r := dead[0].DeadLetterReason; r == nil || *r != "why" {
			s.Errorf("reason = %v, want why", r)
		}
	}},
	{name: "an abandon counts with the commit", check: func(s *scene) {
		s.text("a")
		c, id := s.holding()
		txn := c.declare()
		c.wantProvisional(c.dispose(txn, id, &wire.Modified{}), txn, &wire.Modified{})
		c.commit(txn)
		c.next() // again
		s.wantCount("peeked", s.peek(s.receiver())[0], 2)
	}},
	{name: "after a rollback the lock is still held", check: func(s *scene) {
		s.text("a")
		c := s.transactions()
		c.from(s.queue)
		t, _ := await(c, func(*wire.Transfer) bool { return true })
		txn := c.declare()
		c.accept(txn, t.DeliveryID)
		c.rollback(txn)
		s.wantDeliverable("after the rollback")
		// The holder of the token settles over $management, where the SDK goes, too, when its link does
		// not know better.
		r := s.receiver()
		s.must(r.CompleteMessage(s.ctx, &azservicebus.ReceivedMessage{LockToken: tokenOf(t.DeliveryTag)}, nil))
		s.wantBodies("left", s.peek(r))
	}},
	{name: "a lock does not lapse while a transaction is open", check: func(s *scene) {
		if s.target.LockDuration > time.Minute {
			s.Skip("the lock lasts longer than the transaction")
		}
		s.text("a")
		c, id := s.holding()
		txn := c.declare()
		c.accept(txn, id)
		s.lapse()
		s.wantDeliverable("after the time of the lock")
		c.commit(txn)
		s.wantBodies("left", s.peek(s.receiver()))
	}},
	{name: "a lock that is lost cannot be settled in a transaction", check: func(s *scene) {
		s.text("a", "b")
		c, id := s.holding()
		to := c.to(s.queue, nil)
		s.lapse()
		txn := c.declare()
		c.wantRefused("disposition", c.dispose(txn, id, wire.Accepted{}), "com.microsoft:message-lock-lost")
		c.text(to, txn, "c") // which part fails is the client's to judge
		c.commit(txn)
		s.wantBodies("left", s.peek(s.receiver()), "a", "b", "c")
	}},
	{name: "a message is settled in one transaction at a time", check: func(s *scene) {
		s.text("a")
		c, id := s.holding()
		first, second := c.declare(), c.declare()
		c.accept(first, id)
		c.send(&wire.Disposition{Role: wire.RoleReceiver, First: id, Last: id, State: &wire.TransactionalState{TxnID: second, Outcome: wire.Accepted{}}}, nil)
		c.commit(second) // empty: the first has settled the delivery already
		s.wantBodies("before the first commit", s.peek(s.receiver()), "a")
		c.commit(first)
		s.wantBodies("left", s.peek(s.receiver()))
	}},
	{name: "an unknown transaction is refused", check: func(s *scene) {
		s.text("a")
		c, id := s.holding()
		to := c.to(s.queue, nil)
		txn := c.declare()
		c.commit(txn)
		const want = wire.ErrCondTransactionUnknownID
		for name, unknown := range map[string][]byte{"ended": txn, "never declared": []byte("x")} {
			c.wantRefused(name+": discharge", c.discharge(unknown, false), want)
			c.wantRefused(name+": rollback", c.discharge(unknown, true), want)
			c.wantRefused(name+": transfer", c.transfer(to, unknown, false, wire.AppendData(nil, []byte("x"))), want)
		}
		c.wantRefused("disposition", c.dispose(txn, id, wire.Accepted{}), want)
		s.wantBodies("left", s.peek(s.receiver()), "a")
	}},
	{name: "a transaction ends after two minutes", check: func(s *scene) {
		c, to, txn := s.sending()
		c.text(to, txn, "a")
		s.target.Wait(2*time.Minute + time.Second)
		late := c.transfer(to, txn, false, wire.AppendData(nil, []byte("b")))
		st := c.discharge(txn, false)
		c.wantRefused("transfer", late, wire.ErrCondTransactionTimeout, wire.ErrCondTransactionUnknownID)
		c.wantRefused("discharge", st, wire.ErrCondTransactionTimeout, wire.ErrCondTransactionUnknownID, wire.ErrCondTransactionRollback)
		s.wantBodies("left", s.peek(s.receiver()))
	}},
	{name: "a transaction holds a hundred messages", check: func(s *scene) {
		c, to, txn := s.sending()
		for range 100 {
			c.text(to, txn, "x")
		}
		st := c.transfer(to, txn, false, wire.AppendData(nil, []byte("one more")))
		if _, rejected := st.(*wire.Rejected); !rejected {
			s.Errorf("message 101 = %s, want rejected", described(st))
		}
		c.commit(txn)
		if n := len(s.peek(s.receiver())); n != 100 {
			s.Errorf("%d messages came of it, want 100", n)
		}
	}},
	{name: "a part that fails unheard dooms the transaction", check: func(s *scene) {
		c, to, txn := s.sending()
		c.text(to, txn, "a")
		c.transfer(to, txn, true, []byte("no message"))
		c.wantRefused("commit", c.discharge(txn, false), wire.ErrCondTransactionRollback)
		s.wantBodies("left", s.peek(s.receiver()))
	}},
	{name: "a connection that is lost rolls back", check: func(s *scene) {
		s.text("a")
		c, id := s.holding()
		to := c.to(s.queue, nil)
		txn := c.declare()
		c.text(to, txn, "b")
		c.accept(txn, id)
		s.must(c.nc.Close())
		s.lapse()
		s.wantDeliverable("after it", "a")
	}},
	{name: "the end of the link to the coordinator rolls back", check: func(s *scene) {
		c, to, txn := s.sending()
		c.text(to, txn, "a")
		c.send(&wire.Detach{Handle: c.control, Closed: true}, nil)
		await(c, func(*wire.Detach) bool { return true })
		c.wantRefused("transfer", c.transfer(to, txn, false, wire.AppendData(nil, []byte("b"))), wire.ErrCondTransactionUnknownID)
		s.wantBodies("left", s.peek(s.receiver()))
	}},
	{name: "a duplicate is dropped at the commit", queue: broker.QueueConfig{RequiresDuplicateDetection: true}, check: func(s *scene) {
		c, to, txn := s.sending()
		c.wantProvisional(c.transfer(to, txn, false, named("id", "late")), txn, wire.Accepted{})
		id := "id"
		s.send(&azservicebus.Message{MessageID: &id, Body: []byte("soon")})
		c.commit(txn)
		s.wantBodies("left", s.peek(s.receiver()), "soon")
	}},
	{name: "nothing is received from a second queue where a session has a coordinator", check: func(s *scene) {
		other, _ := s.second()
		c := s.transactions()
		c.to(s.queue, nil)
		c.from(s.queue)
		c.from(s.queue + "/$DeadLetterQueue")
		c.to(other, nil) // goes via the first
		c.wantNoReceiver(other)
		c.wantNoReceiver(other + "/$DeadLetterQueue")
	}},
	{name: "a transaction stays in one partition", queue: broker.QueueConfig{EnablePartitioning: true}, check: func(s *scene) {
		c, to, txn := s.sending()
		c.wantProvisional(c.transfer(to, txn, false, keyed("1", "a")), txn, wire.Accepted{})
		c.wantProvisional(c.transfer(to, txn, false, keyed("1", "b")), txn, wire.Accepted{})
		c.wantRefused("another key", c.transfer(to, txn, false, keyed("2", "c")), wire.ErrCondNotAllowed)
		c.wantRefused("no key", c.transfer(to, txn, false, wire.AppendData(nil, []byte("d"))), wire.ErrCondNotAllowed)
		c.commit(txn)
		s.wantBodies("left", s.peek(s.receiver()), "a", "b")
	}},
	{name: "settlements of two partitions are two transactions", queue: broker.QueueConfig{EnablePartitioning: true}, check: func(s *scene) {
		c := s.transactions()
		to := c.to(s.queue, nil)
		c.transfer(to, nil, false, keyed("1", "a"))
		c.transfer(to, nil, false, keyed("2", "b"))
		c.from(s.queue)
		first, second := c.next(), c.next()
		txn := c.declare()
		c.accept(txn, first)
		c.wantRefused("the other partition", c.dispose(txn, second, wire.Accepted{}), wire.ErrCondNotAllowed)
		c.rollback(txn)
	}},
	{name: "a message can be sent via another queue", check: func(s *scene) {
		other, otherReceiver := s.second()
		c := s.transactions()
		properties, start := wire.BeginMap(nil)
		properties = wire.AppendSymbol(properties, "com.microsoft:transfer-destination-address")
		properties = wire.AppendString(properties, other)
		to := c.to(s.queue, wire.EndMap(properties, start, 1))
		txn := c.declare()
		c.text(to, txn, "a")
		c.commit(txn)
		s.target.Wait(time.Second) // the service moves it on its own
		s.wantBodies("via", s.peek(s.receiver()))
		s.wantBodies("to", s.peek(otherReceiver), "a")
	}},
}

// keyed is an encoded message with a partition key.
func keyed(key, body string) []byte {
	out := wire.AppendDescriptor(nil, wire.CodeMessageAnnotations)
	out, start := wire.BeginMap(out)
	out = wire.AppendSymbol(out, "x-opt-partition-key")
	out = wire.EndMap(wire.AppendString(out, key), start, 1)
	return wire.AppendData(out, []byte(body))
}

// named is an encoded message with a message-id.
func named(id, body string) []byte {
	out := wire.AppendDescriptor(nil, wire.CodeProperties)
	out, start := wire.BeginList(out)
	out = wire.EndList(wire.AppendString(out, id), start, 1)
	return wire.AppendData(out, []byte(body))
}

// tokenOf is the lock token that a delivery tag states, in the order of a .NET
// GUID.
func tokenOf(tag []byte) (token [16]byte) {
	for i, j := range [...]int{3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15} {
		token[i] = tag[j]
	}
	return token
}
