// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"overdue/internal/amqp"
	"overdue/internal/amqpserver"
)

// transferDestination is the link property of a sender that sends via one entity
// to another.
const transferDestination = "com.microsoft:transfer-destination-address"

// openTarget returns the entity that a sender's messages go to: the one at a, or
// the one to which they go via that. The service takes such messages in a queue
// of the first, so that all of a transaction happens in one place; here that is
// not needed, and they go straight to the other.
func (c *conn) openTarget(l *amqpserver.SinkLink, a address) (*Entity, *amqp.Error) {
	e, err := c.ns.open(a.name)
	if err == nil {
		err = e.mayBeSentTo()
	}
	to, via := amqp.MapLookup(l.Attach().Properties, transferDestination)
	if err != nil || !via || to.Null() {
		return e, err
	}
	path := to.String()
	b := parseAddress(path)
	if to.Err() != nil || b.cbs || b.management || b.deadLetter {
		return nil, amqp.Errorf(amqp.ErrCondInvalidField, "The link property '%s' names no entity to send to.", transferDestination)
	}
	if !c.access.may(b.path(), ClaimSend) {
		return nil, c.denied(b.path(), ClaimSend)
	}
	if e, err = c.ns.open(b.name); err == nil {
		err = e.mayBeSentTo()
	}
	return e, err
}
