// SPDX-License-Identifier: Apache-2.0

package queue

import "errors"

var (
	// ErrLockLost: the token locks nothing. The lock lapsed, the message was settled, or the token was never issued.
	ErrLockLost = errors.New("queue: lock lost")
	// ErrMessageNotFound: no message with that sequence number is in the state the operation needs.
	ErrMessageNotFound = errors.New("queue: message not found")
	// ErrFull: the messages would take the queue over Config.MaxSize. None of them was stored.
	ErrFull = errors.New("queue: full")
	// ErrClosed: Queue.Close was called.
	ErrClosed = errors.New("queue: closed")
	// ErrDeadLetterQueue: a dead-letter queue takes no messages from senders and dead-letters none.
	ErrDeadLetterQueue = errors.New("queue: not possible in a dead-letter queue")
	// ErrPropertiesTooLarge: the properties set by settlements would exceed MaxPropertiesSize. The lock is kept.
	ErrPropertiesTooLarge = errors.New("queue: properties too large")
)
