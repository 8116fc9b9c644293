// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"

	"overdue/internal/amqp"
	"overdue/internal/broker/queue"
)

// dispositions are the outcomes of update-disposition. "defered" is how the
// SDKs spell it, so it is how the wire does.
var dispositions = map[string]queue.Outcome{
	"completed": queue.Complete,
	"abandoned": queue.Abandon,
	"suspended": queue.DeadLetter,
	"defered":   queue.Defer,
}

// updateDisposition settles by lock token, over any connection. That is how
// deferred messages are settled, and those whose link is gone.
func (m management) updateDisposition(_ *Entity, q *queue.Queue, a *arguments) response {
	status := a.text("disposition-status")
	tokens := a.lockTokens()
	session, ofSession := a.session(false)
	how := queue.Settlement{
		DeadLetterReason:           a.text("deadletter-reason"),
		DeadLetterErrorDescription: a.text("deadletter-description"),
	}
	a.read("properties-to-modify", false, func(r *amqp.Reader) {
		set, isMap := r.Value().(amqp.Map)
		if !isMap {
			a.fail("The argument 'properties-to-modify' is no map.")
			return
		}
		var refusal *amqp.Error
		if how.Properties, refusal = properties(set); refusal != nil && a.err == nil {
			a.err = refusal
		}
	})
	if a.err != nil {
		return invalid(a.err)
	}
	outcome, known := dispositions[status]
	if !known {
		return badRequest("The argument 'disposition-status' is not valid.")
	}
	how.Outcome = outcome
	if a.txn != nil {
		if refusal := m.txns.settle(a.txn.TxnID, q, how, tokens, nil); refusal != nil {
			return refused(refusal)
		}
		return ok(nil)
	}
	for _, err := range q.Settle(how, tokens...) {
		if errors.Is(err, queue.ErrLockLost) && ofSession {
			err = lockLost(q, session, err)
		}
		if err != nil {
			return failure(err)
		}
	}
	return ok(nil)
}
