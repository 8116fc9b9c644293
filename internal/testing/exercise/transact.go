// SPDX-License-Identifier: Apache-2.0

package exercise

import (
	"context"
	"net"
	"testing"

	wire "overdue/internal/amqp"
)

// Transact sends encoded messages to an entity in a transaction, over a connection of its own, and
// returns when each was accepted. The transaction is open until end is called, which commits it or
// rolls it back. The Go SDK has no transactions.
func Transact(t *testing.T, dial func(context.Context) (net.Conn, error), entity string, encoded ...[]byte) (end func(commit bool)) {
	t.Helper()
	s := &scene{T: t, target: &Target{Dial: dial}, ctx: t.Context()}
	c := s.transactions()
	to := c.to(entity, nil)
	txn := c.declare()
	for _, m := range encoded {
		c.wantProvisional(c.transfer(to, txn, false, m), txn, wire.Accepted{})
	}
	return func(commit bool) {
		t.Helper()
		if commit {
			c.commit(txn)
		} else {
			c.rollback(txn)
		}
	}
}
