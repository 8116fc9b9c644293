// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"overdue/internal/amqp"
	"overdue/internal/broker/queue"
	"overdue/internal/servicebus/address"
)

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
// the dead-letter queue. It makes a queue where AutoCreate says so. A client that comes this way
// has no session, and is refused where one is required.
func (n *Namespace) Source(path string) (*queue.Queue, *amqp.Error) {
	return sourceAt(path, n.entities.open)
}

// Locked is Source for somebody who holds locks there: nothing is made.
func (n *Namespace) Locked(path string) (*queue.Queue, *amqp.Error) {
	return sourceAt(path, n.entities.lookup)
}

// sourceAt is Source where find finds the entity.
func sourceAt(path string, find func(string) (*Entity, *amqp.Error)) (*queue.Queue, *amqp.Error) {
	a := parseAddress(path)
	if a.Node == address.Management || a.Node == address.CBS {
		return nil, amqp.Errorf(amqp.ErrCondNotAllowed, "It is not possible to receive from '%.300s'.", path)
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
		return nil, err
	}
	e.touch()
	return e.node(a), nil
}
