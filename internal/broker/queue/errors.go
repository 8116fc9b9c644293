// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"errors"
	"fmt"
)

// A NumberError is an error about the messages with these sequence numbers.
type NumberError struct {
	Err     error
	Numbers []int64
}

func (e *NumberError) Error() string { return fmt.Sprintf("%v: %d", e.Err, e.Numbers) }

// Unwrap returns the error without the numbers.
func (e *NumberError) Unwrap() error { return e.Err }

var (
	// ErrLockLost says that the token locks nothing. The lock lapsed, the message was settled, or the token was
	// never issued.
	ErrLockLost = errors.New("queue: lock lost")
	// ErrMessageNotFound says that no message with that sequence number is in the state the operation needs.
	ErrMessageNotFound = errors.New("queue: message not found")
	// ErrFull says that the messages would take the queue over its Quota. None of them was stored.
	ErrFull = errors.New("queue: full")
	// ErrClosed says that Queue.Close was called.
	ErrClosed = errors.New("queue: closed")
	// ErrDeadLetterQueue says that a dead-letter queue takes no messages from senders and dead-letters none.
	ErrDeadLetterQueue = errors.New("queue: not possible in a dead-letter queue")
	// ErrSessionRequired says that a message without a session was sent to a queue that requires one.
	ErrSessionRequired = errors.New("queue: session required")
	// ErrDistinctKeys says that messages of several sessions or partition keys were sent to a partitioned queue
	// in one go.
	ErrDistinctKeys = errors.New("queue: distinct sessions or partition keys")
	// ErrDistinctIDs says the same of a queue that detects duplicates, where message-ids count for those
	// without a session or partition key.
	ErrDistinctIDs = errors.New("queue: distinct sessions, partition keys or message-ids")
	// ErrNotSessionful says that a queue without Config.RequiresSession has no sessions, and neither has a
	// dead-letter queue.
	ErrNotSessionful = errors.New("queue: has no sessions")
	// ErrSessionLocked says that somebody holds the lock of the session.
	ErrSessionLocked = errors.New("queue: session is locked")
	// ErrSessionLockLost says that the lock of the session lapsed or was given up, or nobody ever had it.
	ErrSessionLockLost = errors.New("queue: session lock lost")
	// ErrLockedBySession says that a message of a session has no lock of its own that could be renewed.
	ErrLockedBySession = errors.New("queue: locked by its session")
	// ErrBeingCanceled says that a transaction is about to cancel the scheduled message.
	ErrBeingCanceled = errors.New("queue: scheduled message is being canceled")
	// ErrCanceled says that the caller gave up waiting.
	ErrCanceled = errors.New("queue: canceled")
	// ErrNoRoom says that a log has no room on its disk. It keeps the reported changes as soon as it has.
	ErrNoRoom = errors.New("queue: no room on the disk")
	// ErrNotStored says that a log cannot write, and will not before it is opened again.
	ErrNotStored = errors.New("queue: cannot be stored")
	// ErrPropertiesTooLarge says that the properties set by settlements would exceed MaxPropertiesSize. The
	// lock is kept.
	ErrPropertiesTooLarge = errors.New("queue: properties too large")
)
