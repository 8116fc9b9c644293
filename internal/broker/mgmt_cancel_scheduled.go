// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"

	"overdue/internal/broker/message"
	"overdue/internal/broker/queue"
	"overdue/internal/broker/quirk"
)

// cancelScheduled removes scheduled messages, all or none.
func (m management) cancelScheduled(_ *Entity, q *queue.Queue, a *arguments) response {
	numbers := a.sequenceNumbers(message.MaxBatch)
	if a.err != nil {
		return invalid(a.err)
	}
	if a.txn != nil {
		if refusal := m.txns.cancelScheduled(a.txn.TxnID, q, numbers); refusal != nil {
			return refused(refusal)
		}
		return ok(nil)
	}
	if m.ns.b.cfg.Quirks.Has(quirk.CancelPartial) {
		return cancelPartial(q, numbers)
	}
	err := q.CancelScheduled(numbers...)
	if errors.Is(err, queue.ErrMessageNotFound) {
		return response{status: statusNotFound, condition: condMessageNotFound,
			description: "One or more of the messages are not scheduled, or not any more."}
	}
	if err != nil {
		return failure(err)
	}
	return ok(nil)
}
