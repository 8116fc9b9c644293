// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"cmp"
	"errors"

	"overdue/internal/amqp"
	"overdue/internal/broker/message"
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

// explanations are the arguments that say why a message is dead-lettered, and the properties that
// they become.
var explanations = map[string]string{
	"deadletter-reason":      message.PropDeadLetterReason,
	"deadletter-description": message.PropDeadLetterDescription,
}

// updateDisposition settles by lock token, over any connection. That is how
// deferred messages are settled, and those whose link is gone.
func (m management) updateDisposition(e *Entity, q *queue.Queue, a *arguments) response {
	status := a.text("disposition-status")
	tokens := a.lockTokens()
	session, ofSession := a.session(false)
	var set amqp.Map
	a.read("properties-to-modify", false, func(r *amqp.Reader) {
		var isMap bool
		if set, isMap = r.Value().(amqp.Map); !isMap {
			a.fail("The argument 'properties-to-modify' is no map.")
		}
	})
	outcome, known := dispositions[status]
	if !known {
		a.fail("The argument 'disposition-status' is not valid.")
	}
	how := queue.Settlement{Outcome: outcome}
	var refusal *amqp.Error
	if outcome == queue.DeadLetter {
		for argument, property := range explanations {
			a.read(argument, false, func(r *amqp.Reader) { set = append(set, amqp.Pair{Key: property, Value: r.Value()}) })
		}
		how, refusal = deadLettering(&amqp.Error{Condition: condDeadLetter, Info: set})
	} else {
		how.Properties, refusal = properties(set)
	}
	if a.err = cmp.Or(a.err, refusal); a.err != nil {
		return refused(a.err)
	}
	if a.txn != nil {
		if refusal := m.txns.settle(a.txn.TxnID, e, q, how, tokens, nil, nil); refusal != nil {
			return refused(refusal)
		}
		return ok(nil)
	}
	for _, err := range e.settle(q, how, tokens...) {
		if errors.Is(err, queue.ErrLockLost) && ofSession {
			err = lockLost(q, session, err)
		}
		if err != nil {
			return failure(err)
		}
	}
	return ok(nil)
}
