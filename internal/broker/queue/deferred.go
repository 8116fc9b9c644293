// SPDX-License-Identifier: Apache-2.0

package queue

// ReceiveDeferred locks the deferred messages with these sequence numbers, or removes them in mode
// ReceiveAndDelete; all or none. That counts nothing: the defer did. In a peek they stay deferred,
// and stay so when abandoned or released. A deferred message that has expired is only noticed here:
// it is dead-lettered or dropped, and the call fails. Errors: ErrMessageNotFound when one of them
// is not deferred, is locked, expired or named twice; ErrSessionLockLost when nobody holds the
// session lock of one of them; ErrClosed.
func (q *Queue) ReceiveDeferred(mode Mode, seqs ...int64) ([]Delivery, error) {
	now, err := q.enter()
	if err != nil {
		return nil, err
	}
	defer q.leave(now)
	return q.locks.receiveDeferred(mode, seqs, now, func(*entry) bool { return true })
}
