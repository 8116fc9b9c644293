// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"

	"overdue/internal/amqp"
	"overdue/internal/broker/message"
	"overdue/internal/broker/queue"
)

// Conditions of Service Bus that AMQP does not have.
const (
	condAuthFailed      amqp.Symbol = "com.microsoft:auth-failed"
	condArgumentError               = message.CondArgumentError
	condOutOfRange      amqp.Symbol = "com.microsoft:argument-out-of-range"
	condDeadLetter      amqp.Symbol = "com.microsoft:dead-letter"
	condEntityExists    amqp.Symbol = "com.microsoft:entity-already-exists"
	condEntityDisabled  amqp.Symbol = "com.microsoft:entity-disabled"
	condLockLost        amqp.Symbol = "com.microsoft:message-lock-lost"
	condMessageNotFound amqp.Symbol = "com.microsoft:message-not-found"
	condServerBusy      amqp.Symbol = "com.microsoft:server-busy"
	condTimeout         amqp.Symbol = "com.microsoft:timeout"

	condSessionCannotBeLocked amqp.Symbol = "com.microsoft:session-cannot-be-locked"
	condSessionLockLost       amqp.Symbol = "com.microsoft:session-lock-lost"
)

// Status codes of request/response links. They are those of HTTP.
const (
	statusOK             int32 = 200
	statusAccepted       int32 = 202
	statusNoContent      int32 = 204
	statusBadRequest     int32 = 400
	statusUnauthorized   int32 = 401
	statusForbidden      int32 = 403
	statusNotFound       int32 = 404
	statusTimeout        int32 = 408
	statusConflict       int32 = 409
	statusGone           int32 = 410
	statusInternal       int32 = 500
	statusNotImplemented int32 = 501
	statusServerBusy     int32 = 503
)

// failures says how an error of a queue looks on the wire. The sentences are
// the service's where they are known, because people search for them.
var failures = []struct {
	err       error
	condition amqp.Symbol
	text      string
}{
	{queue.ErrLockLost, condLockLost,
		"The lock supplied is invalid. Either the lock expired, or the message has already been removed from the queue."},
	{queue.ErrMessageNotFound, condMessageNotFound,
		"Failed to lock one or more specified messages. Either the message is already locked or does not exist."},
	{queue.ErrSessionLockLost, condSessionLockLost,
		"The session lock has expired on the MessageSession. Accept a new MessageSession. "},
	{queue.ErrSessionRequired, amqp.ErrCondNotAllowed,
		"The SessionId was not set on a message, and it cannot be sent to the entity. " +
			"Entities that have session support enabled can only receive messages that have the SessionId set to a valid value."},
	{queue.ErrDistinctKeys, amqp.ErrCondNotAllowed,
		"Batching brokered messages with distinct SessionId or PartitionKey is not supported for an entity with partitioning enabled."},
	{queue.ErrDistinctIDs, amqp.ErrCondNotAllowed,
		"Batching brokered messages with distinct SessionId, PartitionKey, or MessageId  is not supported for an entity with " +
			"partitioning and duplicate detection enabled."}, // two blanks, as the service has it
	{queue.ErrLockedBySession, amqp.ErrCondNotAllowed,
		"A message of a session is locked as long as its session is. Renew the lock of the session."},
	{queue.ErrNotSessionful, amqp.ErrCondNotAllowed,
		"The operation needs an entity that requires sessions."},
	{queue.ErrFull, amqp.ErrCondResourceLimitExceeded,
		"The maximum entity size has been reached or exceeded."},
	{queue.ErrNoRoom, amqp.ErrCondResourceLimitExceeded,
		"The maximum size has been reached or exceeded: the disk of the broker is full."},
	{queue.ErrNotStored, condServerBusy,
		"The server is busy: the broker cannot write to its disk."},
	{queue.ErrPropertiesTooLarge, amqp.ErrCondResourceLimitExceeded,
		"The properties to modify would make the message's properties too large."},
	{queue.ErrDeadLetterQueue, amqp.ErrCondNotAllowed,
		"The operation is not possible on a dead-letter queue."},
	{queue.ErrClosed, amqp.ErrCondNotFound,
		"The messaging entity has been deleted."},
}

// refusalOf returns how an error of a queue looks on the wire.
func refusalOf(err error) *amqp.Error {
	if err == nil {
		return nil
	}
	for _, f := range failures {
		if errors.Is(err, f.err) {
			return &amqp.Error{Condition: f.condition, Description: f.text}
		}
	}
	return &amqp.Error{Condition: amqp.ErrCondInternalError, Description: err.Error()}
}

// refused answers a request with what a link would be refused with.
func refused(e *amqp.Error) response {
	status := statusInternal
	switch e.Condition {
	case amqp.ErrCondNotFound, condMessageNotFound:
		status = statusNotFound
	case amqp.ErrCondTransactionUnknownID, amqp.ErrCondTransactionRollback, amqp.ErrCondTransactionTimeout,
		amqp.ErrCondNotAllowed, condEntityDisabled, condArgumentError, condOutOfRange:
		status = statusBadRequest
	case condTimeout:
		status = statusTimeout
	case condEntityExists:
		status = statusConflict
	case amqp.ErrCondUnauthorizedAccess, condAuthFailed:
		status = statusUnauthorized
	case amqp.ErrCondResourceLimitExceeded, amqp.ErrCondLinkMessageSizeExceeded:
		status = statusForbidden
	case amqp.ErrCondNotImplemented:
		status = statusNotImplemented
	case condServerBusy:
		status = statusServerBusy
	case condLockLost, condSessionLockLost, condSessionCannotBeLocked:
		status = statusGone
	}
	return response{status: status, condition: e.Condition, description: e.Description}
}

// notFound names what does not exist by its URL, or from inside.
func notFound(name string) *amqp.Error {
	return amqp.Errorf(amqp.ErrCondNotFound, "The messaging entity '%.300s' could not be found."+readOnResources, name)
}

func alreadyExists(reference string) *amqp.Error {
	return amqp.Errorf(condEntityExists, "The messaging entity '%.300s' already exists."+readOnResources, reference)
}

func errDeleted(path string) *amqp.Error {
	return amqp.Errorf(amqp.ErrCondNotFound, "The messaging entity '%.260s' has been deleted.", path)
}
