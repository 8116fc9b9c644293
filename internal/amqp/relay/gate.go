// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"overdue/internal/amqp"
	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/rights"
)

// gated returns what watches the requests of a client to a management node, where
// what it may do there depends on what it has proven. next may be nil.
func (c *conn) gated(l *link, next Watcher) Watcher {
	if c.auth.grants == nil || l.class.Kind != rights.Requests {
		return next
	}
	return &gate{c.auth.grants, l.class.Address, next}
}

// A gate refuses the requests to a management node that the client has no right to.
// Upstream, which knows the relay's own rights alone, would not.
type gate struct {
	grants *grants
	at     address.Address // of the node
	next   Watcher         // nil: what is let in passes
}

// Deliver asks for the rights of the operation.
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

// Detached passes it on.
func (g *gate) Detached() {
	if g.next != nil {
		g.next.Detached()
	}
}
