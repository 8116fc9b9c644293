// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"

	"overdue/internal/amqp"
	"overdue/internal/queue"
)

// Conditions of Service Bus that AMQP does not have.
const (
	condArgumentError   amqp.Symbol = "com.microsoft:argument-error"
	condOutOfRange      amqp.Symbol = "com.microsoft:argument-out-of-range"
	condDeadLetter      amqp.Symbol = "com.microsoft:dead-letter"
	condLockLost        amqp.Symbol = "com.microsoft:message-lock-lost"
	condMessageNotFound amqp.Symbol = "com.microsoft:message-not-found"
	condServerBusy      amqp.Symbol = "com.microsoft:server-busy"
)

// Status codes of request/response links. They are those of HTTP.
const (
	statusOK             int32 = 200
	statusAccepted       int32 = 202
	statusNoContent      int32 = 204
	statusBadRequest     int32 = 400
	statusForbidden      int32 = 403
	statusNotFound       int32 = 404
	statusGone           int32 = 410
	statusInternal       int32 = 500
	statusNotImplemented int32 = 501
	statusServerBusy     int32 = 503
)

// failures says how an error of a queue looks on the wire. The sentences are
// the service's where they are known, because people search for them.
var failures = []struct {
	err       error
	status    int32
	condition amqp.Symbol
	text      string
}{
	{queue.ErrLockLost, statusGone, condLockLost,
		"The lock supplied is invalid. Either the lock expired, or the message has already been removed from the queue."},
	{queue.ErrMessageNotFound, statusNotFound, condMessageNotFound,
		"Failed to lock one or more specified messages. Either the message is already locked or does not exist."},
	{queue.ErrFull, statusForbidden, amqp.ErrCondResourceLimitExceeded,
		"The maximum entity size has been reached or exceeded."},
	{queue.ErrPropertiesTooLarge, statusForbidden, amqp.ErrCondResourceLimitExceeded,
		"The properties to modify would make the message's properties too large."},
	{queue.ErrDeadLetterQueue, statusBadRequest, amqp.ErrCondNotAllowed,
		"The operation is not possible on a dead-letter queue."},
	{queue.ErrClosed, statusNotFound, amqp.ErrCondNotFound,
		"The messaging entity has been deleted."},
}

// wireError returns how err looks in a disposition, and the status it has in a
// response.
func wireError(err error) (*amqp.Error, int32) {
	for _, f := range failures {
		if errors.Is(err, f.err) {
			return &amqp.Error{Condition: f.condition, Description: f.text}, f.status
		}
	}
	return &amqp.Error{Condition: amqp.ErrCondInternalError, Description: err.Error()}, statusInternal
}

func notFound(name string) *amqp.Error {
	return amqp.Errorf(amqp.ErrCondNotFound, "The messaging entity '%.260s' could not be found.", name)
}
