// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"overdue/internal/amqp"
	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/rights"
)

// gated returns the watcher of a client's requests to a management node, if its grants decide
// which ones it may send. next may be nil.
func (c *conn) gated(l *link, next Watcher) Watcher {
	if c.auth.grants == nil || l.class.Kind != rights.Requests {
		return next
	}
	return &gate{c.auth.grants, l.class.Address, next}
}

// A gate refuses requests to a management node for which the client lacks the right. Upstream
// would not, since it sees only the relay's own rights.
type gate struct {
	grants *grants
	at     address.Address // of the node
	next   Watcher         // nil: admitted requests pass
}

// Deliver checks the right that the operation needs.
func (g *gate) Deliver(d *Delivery) (DeliveryHandler, *amqp.Error) {
	_, oneOf, err := rights.Operation(g.at, d.Payload)
	if err == nil {
		err = g.grants.refuse(g.at.String(), oneOf)
	}
	if err != nil {
		return nil, err
	}
	if g.next == nil {
		return nil, nil
	}
	return g.next.Deliver(d)
}

// Detached calls next.
func (g *gate) Detached() {
	if g.next != nil {
		g.next.Detached()
	}
}
