// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"fmt"

	"overdue/internal/amqp"
	"overdue/internal/queue"
)

const (
	// maxDeferred is the most messages received by number in one go.
	maxDeferred = 250
	// maxDeferredBytes bounds the response, which has to hold all of them.
	maxDeferredBytes = 8 << 20
)

// receiveDeferred locks deferred messages by number, or removes them, all or
// none.
func (m management) receiveDeferred(q *queue.Queue, a *arguments) response {
	numbers := a.sequenceNumbers(maxDeferred)
	settleMode := a.integer("receiver-settle-mode", false)
	if a.err == nil && (settleMode < 0 || settleMode > 1) {
		a.fail("The argument 'receiver-settle-mode' is neither 0 nor 1.")
	}
	if a.err != nil {
		return invalid(a.err)
	}
	mode := queue.PeekLock
	if settleMode == 0 {
		mode = queue.ReceiveAndDelete
	}
	// Before anything is removed; a message does not grow meanwhile by more than
	// the properties that settlements can set.
	if size := sizeOf(q, numbers); size > maxDeferredBytes {
		return response{status: statusForbidden, condition: amqp.ErrCondLinkMessageSizeExceeded,
			description: fmt.Sprintf("The messages have %d bytes, %d is the most for one request.", size, maxDeferredBytes)}
	}
	ds, err := q.ReceiveDeferred(mode, numbers...)
	if err != nil {
		return failure(err)
	}
	page := newPage(maxDeferredBytes)
	for i := range ds {
		d := &ds[i]
		var lock *queue.LockToken
		o := overlay{}
		if mode == queue.PeekLock {
			lock, o = &d.LockToken, delivered(d)
		}
		if err := page.add(&d.View, o, lock); err != nil {
			return failure(err)
		}
	}
	return page.response()
}

// sizeOf returns how many bytes these messages have together.
func sizeOf(q *queue.Queue, numbers []int64) (size int) {
	var one []queue.View
	for _, n := range numbers {
		one = q.Peek(one[:0], n, 1)
		if len(one) == 1 && one[0].SequenceNumber == n {
			size += len(one[0].Body) + perMessage
		}
	}
	return size
}
