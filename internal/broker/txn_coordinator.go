// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"cmp"

	"overdue/internal/amqp"
	"overdue/internal/amqp/server"
	"overdue/internal/broker/message"
)

// A coordinator takes the messages by which a client begins and ends its
// transactions (AMQP part 4).
type coordinator struct {
	b    *Broker
	link *server.SinkLink
	txns *transactions
}

// attachCoordinator opens a link to the coordinator, and says what it can.
func (c *conn) attachCoordinator(l *server.SinkLink) (server.Sink, *amqp.Error) {
	can, err := amqp.AppendValue(nil, amqp.Array{
		amqp.Symbol("amqp:local-transactions"),
		amqp.Symbol("amqp:multi-txns-per-ssn"),
		amqp.Symbol("amqp:multi-ssns-per-txn"),
	})
	if err != nil {
		return nil, amqp.Errorf(amqp.ErrCondInternalError, "%v", err)
	}
	c.txns.coordinate(l.Session())
	l.Reply.SettleFirst = true
	l.Reply.Coordinator = &amqp.Coordinator{Capabilities: can}
	return &coordinator{b: c.b, link: l, txns: &c.txns}, nil
}

// Deliver takes a declare or a discharge.
func (c *coordinator) Deliver(d *server.Delivery) {
	state, err := c.perform(d)
	if d.Settled {
		return
	}
	c.b.disk.after(func(refusal *amqp.Error) {
		if err = cmp.Or(err, refusal); err != nil {
			state = &amqp.Rejected{Error: tracked(err, noSystemTracker)}
		}
		c.link.Settle(d, state)
	})
}

func (c *coordinator) perform(d *server.Delivery) (amqp.DeliveryState, *amqp.Error) {
	m, err := amqp.ParseMessage(d.Payload)
	if err != nil {
		return nil, message.Malformed(err)
	}
	value, ok := m.Value()
	if !ok {
		return nil, amqp.Errorf(amqp.ErrCondNotAllowed, "The message to the coordinator has no value for its body.")
	}
	switch value.PeekDescriptor() {
	case amqp.CodeDeclare:
		var declare amqp.Declare
		switch err := declare.Decode(&value); {
		case err != nil:
			return nil, message.Malformed(err)
		case declare.GlobalID != nil:
			return nil, amqp.Errorf(amqp.ErrCondNotImplemented, "Distributed transactions are not supported.")
		case d.Settled:
			return nil, nil // its id could not be sent
		}
		id, refusal := c.txns.declare(c.link)
		if refusal != nil {
			return nil, refusal
		}
		return &amqp.Declared{TxnID: id}, nil
	case amqp.CodeDischarge:
		var discharge amqp.Discharge
		if err := discharge.Decode(&value); err != nil {
			return nil, message.Malformed(err)
		}
		return amqp.Accepted{}, c.txns.discharge(discharge.TxnID, discharge.Fail)
	}
	return nil, amqp.Errorf(amqp.ErrCondNotAllowed, "The message to the coordinator is neither declare nor discharge.")
}

// Detached rolls back what was not discharged.
func (c *coordinator) Detached(*amqp.Error) { c.txns.abandon(c.link) }
