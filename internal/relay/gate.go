// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"overdue/internal/amqp"
	"overdue/internal/sas"
)

// gated returns what watches the requests of a client to a management node, where
// what it may do there depends on what it has proven. next may be nil.
func (c *conn) gated(address string, next Watcher) Watcher {
	if c.auth.grants == nil || !isManagement(address) {
		return next
	}
	return &gate{c.auth.grants, address, next}
}

// A gate refuses the requests to a management node that the client has no right to.
// Upstream, which knows the relay's own rights alone, would not.
type gate struct {
	grants  *grants
	address string
	next    Watcher // nil: what is let in passes
}

// Deliver asks for the rights of the operation.
func (g *gate) Deliver(d *Delivery) (Held, *amqp.Error) {
	needed := sas.Manage // of what upstream may read in another way
	if operation := OperationOf(d.Payload); operation != "" {
		needed = sas.ForOperation(operation)
	}
	if err := g.grants.refuse(g.address, needed); err != nil {
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

// OperationOf is the operation of a request to a management node, "" when it does
// not state exactly one that can be read.
func OperationOf(request []byte) string {
	m, err := amqp.ParseMessage(request)
	if err != nil || m.ApplicationProperties == nil {
		return ""
	}
	r := amqp.NewReader(m.ApplicationProperties)
	pairs, n := r.Map()
	operation := ""
	for range n {
		key, value := amqp.NewReader(pairs.Raw()), amqp.NewReader(pairs.Raw())
		if string(key.StringBytes()) != "operation" {
			continue
		}
		stated := string(value.StringBytes())
		if operation != "" || value.Err() != nil {
			return ""
		}
		operation = stated
	}
	if pairs.Err() != nil {
		return ""
	}
	return operation
}
