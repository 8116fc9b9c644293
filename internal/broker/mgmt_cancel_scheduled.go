// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"overdue/internal/amqp"
	"overdue/internal/broker/queue"
	"overdue/internal/broker/quirk"
)

// cancelScheduled removes scheduled messages, all or none.
func (m management) cancelScheduled(e *Entity, q *queue.Queue, a *arguments) response {
	numbers := a.sequenceNumbers(math.MaxInt)
	if a.err != nil {
		return refused(a.err)
	}
	if a.txn != nil {
		if refusal := m.txns.cancelScheduled(a.txn.TxnID, e, q, numbers); refusal != nil {
			return refused(refusal)
		}
		return ok(nil)
	}
	if m.ns.b.cfg.Quirks.Has(quirk.CancelPartial) {
		return cancelPartial(q, numbers)
	}
	if err := q.CancelScheduled(numbers...); err != nil {
		return refused(errCancel(err))
	}
	return ok(nil)
}

// errCancel is how the cancelling of scheduled messages is refused, in the words of the service:
// MassTransit issue 926, and Azure/azure-service-bus-go issue 177.
func errCancel(err error) *amqp.Error {
	of := (*queue.NumberError)(nil)
	switch {
	case !errors.As(err, &of):
		return refusalOf(err)
	case errors.Is(err, queue.ErrBeingCanceled):
		return amqp.Errorf(amqp.ErrCondNotAllowed, "The scheduled message with SequenceNumber = %d is already being cancelled. ", of.Numbers[0])
	}
	numbers := strings.ReplaceAll(strings.Trim(fmt.Sprint(of.Numbers), "[]"), " ", ",")
	return amqp.Errorf(condMessageNotFound, "Messages not found. Missing sequence numbers: %.4000s ", numbers)
}
