// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"overdue/internal/amqp"
	"overdue/internal/servicebus/rights"
)

// openTarget returns the entity that a sender's messages go to: the one that the
// link is attached to, or the one to which they go via that. The service takes such
// messages in a queue of the first, so that all of a transaction happens in one
// place; here that is not needed, and they go straight to the other.
func (c *conn) openTarget(class *rights.Class) (*Entity, *amqp.Error) {
	e, err := c.ns.open(class.Address.Entity())
	if err == nil {
		err = e.mayBeSentTo()
	}
	if err != nil || class.Destination.IsNamespace() {
		return e, err
	}
	if e, err = c.ns.open(class.Destination.Entity()); err == nil {
		err = e.mayBeSentTo()
	}
	return e, err
}
