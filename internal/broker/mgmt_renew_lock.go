// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"overdue/internal/amqp"
	"overdue/internal/broker/queue"
)

// renewLock renews locks, all or none, whichever connection they were
// given to.
func (m management) renewLock(_ *Entity, q *queue.Queue, a *arguments) response {
	tokens := a.lockTokens()
	if a.err != nil {
		return refused(a.err)
	}
	until, err := q.RenewLocks(tokens)
	if err != nil {
		return failure(err)
	}
	all := make(amqp.Array, len(until))
	for i, t := range until {
		all[i] = amqp.TimestampOf(t)
	}
	return okOne("expirations", all)
}
