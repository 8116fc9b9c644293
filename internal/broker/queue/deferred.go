// SPDX-License-Identifier: Apache-2.0

package queue

import "slices"

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
	return q.receiveDeferred(mode, seqs, now, func(*entry) bool { return true })
}

// receiveDeferred is ReceiveDeferred, with the mutex held, of messages that are fit.
func (q *Queue) receiveDeferred(mode Mode, seqs []int64, now instant, fit func(*entry) bool) ([]Delivery, error) {
	es, missing := q.entries.find(seqs, func(e *entry) bool { return e.state == Deferred && !e.locked && fit(e) })
	if q.sessions != nil && slices.ContainsFunc(es, func(e *entry) bool { return q.sessions.lockOf(e) == nil }) {
		return nil, ErrSessionLockLost
	}
	for _, e := range es {
		if q.expiry.expired(e, now) {
			q.expiry.expire(e)
			missing = append(missing, e.seq)
		}
	}
	if missing != nil {
		return nil, &NumberError{ErrMessageNotFound, missing}
	}
	ds := make([]Delivery, len(es))
	for i, e := range es {
		if mode == PeekLock {
			q.locks.lock(e, mode, now)
		}
		if ds[i] = q.entries.delivery(e); mode == ReceiveAndDelete {
			q.entries.drop(e)
		}
	}
	return ds, nil
}
