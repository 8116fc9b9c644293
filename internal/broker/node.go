// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"

	"overdue/internal/amqp"
	"overdue/internal/broker/queue"
	"overdue/internal/servicebus/address"
)

// A Place is the queue that an address means, and the entity that it is a part of.
type Place struct {
	*queue.Queue
	entity *Entity
}

// SettleOne settles one delivery. Errors: see Queue.Settle.
func (p Place) SettleOne(outcome queue.Outcome, token queue.LockToken) error {
	return errors.Join(p.entity.settle(p.Queue, queue.Settlement{Outcome: outcome}, token)...)
}

// NoteDelivered counts a message that a client has got.
func (p Place) NoteDelivered() { p.entity.activities.outgoing.Add(1) }

// The operations of HTTP endpoints on an address. They are refused what a link
// would be.

// Target returns the entity that messages for path are sent to. It makes a queue
// where AutoCreate says so.
func (n *Namespace) Target(path string) (*Entity, *amqp.Error) {
	a := parseAddress(path)
	if a.Node == address.Management || isDead(a) || a.Node == address.CBS {
		return nil, amqp.Errorf(amqp.ErrCondNotAllowed, "It is not possible to send to '%.300s'.", path)
	}
	e, err := n.entities.open(a.Entity())
	if err != nil {
		return nil, err
	}
	return e, e.mayBeSentTo()
}

// Source returns the queue that messages are received from at path. This is the queue of a queue or
// a subscription. For a path that ends with /$DeadLetterQueue or /$Transfer/$DeadLetterQueue, it is
// the dead-letter queue. With makes it makes a queue where AutoCreate says so, which nobody needs who
// holds locks there. A client that comes this way has no session, and is refused where one is required.
func (n *Namespace) Source(path string, makes bool) (Place, *amqp.Error) {
	find := n.entities.lookup
	if makes {
		find = n.entities.open
	}
	a := parseAddress(path)
	if a.Node == address.Management || a.Node == address.CBS {
		return Place{}, amqp.Errorf(amqp.ErrCondNotAllowed, "It is not possible to receive from '%.300s'.", path)
	}
	e, err := find(a.Entity())
	if err == nil {
		err = e.mayBeReceivedFrom(a)
	}
	if err == nil && e.RequiresSession() && !isDead(a) {
		err = amqp.Errorf(amqp.ErrCondNotAllowed,
			"It is not possible for an entity that requires sessions to create a non-sessionful message receiver: '%.260s'.", e.path)
	}
	if err != nil {
		return Place{}, err
	}
	e.touch()
	return Place{e.node(a), e}, nil
}
