// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"slices"

	"overdue/internal/amqp"
	"overdue/internal/broker/message"
	"overdue/internal/broker/queue"
)

const (
	// maxDeferred is the most messages that are received for deletion by number
	// in one go. Under locks it is what one request can name.
	maxDeferred = 250
	// maxDeferredBytes bounds the response, which has to hold all of them.
	maxDeferredBytes = 8 << 20
)

// receiveDeferred locks deferred messages by number, or removes them, all or
// none.
func (m management) receiveDeferred(e *Entity, q *queue.Queue, a *arguments) response {
	settleMode := a.integer("receiver-settle-mode", false)
	most := maxTokens
	if settleMode == 0 {
		most = maxDeferred
	}
	numbers := a.sequenceNumbers(most)
	session, ofSession := a.session(false) // which the Go SDK does not state
	if a.err == nil && (settleMode < 0 || settleMode > 1) {
		a.fail("The argument 'receiver-settle-mode' is neither 0 nor 1.")
	}
	if a.err != nil {
		return refused(a.err)
	}
	if a.txn != nil && settleMode == 0 {
		return refused(errOutside("com.microsoft:receive-by-sequence-number"))
	}
	if q.Config().Partitioned && slices.ContainsFunc(numbers, func(n int64) bool { return n>>48 != numbers[0]>>48 }) {
		// The service refuses, too; its words are not known.
		return refused(amqp.Errorf(amqp.ErrCondNotAllowed, "The sequence numbers are of more than one partition."))
	}
	mode := queue.PeekLock
	if settleMode == 0 {
		mode = queue.LockAndRemove
	}
	if refusal := m.ns.b.disk.DeliveryTrouble(mode == queue.LockAndRemove); refusal != nil {
		return refused(refusal)
	}
	// Before anything is removed; a message does not grow meanwhile by more than
	// the properties that settlements can set.
	if size := q.ContentSize(numbers...) + len(numbers)*message.PerMessage; size > maxDeferredBytes {
		return refused(amqp.Errorf(amqp.ErrCondLinkMessageSizeExceeded, "The messages have %d bytes, %d is the most for one request.", size, maxDeferredBytes))
	}
	var ds []queue.Delivery
	var err error
	if ofSession {
		ds, err = q.Sessions().ReceiveDeferred(mode, session, numbers...)
	} else {
		ds, err = q.ReceiveDeferred(mode, numbers...)
	}
	if err != nil {
		return failure(err)
	}
	page := new(message.Page).Begin(maxDeferredBytes)
	for i := range ds {
		d := &ds[i]
		var lock *queue.LockToken
		o := message.Overlay{}
		if mode == queue.PeekLock {
			lock, o = &d.LockToken, message.Delivered(d)
		}
		if err := page.Add(&d.View, o, lock); err != nil {
			return failure(err)
		}
	}
	e.activities.outgoing.Add(uint64(len(ds)))
	res := pageOf(page)
	if mode == queue.LockAndRemove {
		res.commit = func(stored bool) error { return deleteLocked(q, ds, stored) }
	}
	return res
}

// deleteLocked ends the locks of messages that a response has: they are completed where the disk
// has that, and released otherwise.
func deleteLocked(q *queue.Queue, ds []queue.Delivery, stored bool) error {
	tokens := make([]queue.LockToken, len(ds))
	for i := range ds {
		tokens[i] = ds[i].LockToken
	}
	how := queue.Settlement{Outcome: queue.Complete}
	if !stored {
		how.Outcome = queue.Release
	}
	return errors.Join(q.Settle(how, tokens...)...)
}
