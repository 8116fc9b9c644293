// SPDX-License-Identifier: Apache-2.0

package queue

import "cmp"

// Peek is Queue.Peek for the messages of one session. It needs no lock.
func (ss *Sessions) Peek(dst []View, id string, from int64, max int) (views []View, err error) {
	if max <= 0 || ss == nil {
		return dst, nil
	}
	err = ss.q.changes.withContents(func(has contents) (missing []int64) {
		views = dst
		now, err := ss.enter()
		if err != nil {
			return nil
		}
		defer ss.q.leave(now)
		ss.q.dispatch.assign(now) // as in Queue.Peek
		if s := ss.byID[id]; s != nil {
			views, missing = ss.q.entries.peek(dst, &s.byNumber, false, from, max, has)
		}
		return missing
	})
	return views, err
}

// ReceiveDeferred is Queue.ReceiveDeferred for the messages of one session, whose lock must be
// held: they are locked as long as it is. Errors: those of Queue.ReceiveDeferred, also ErrMessageNotFound
// for a message of another session; ErrSessionLockLost, ErrNotSessionful.
func (ss *Sessions) ReceiveDeferred(mode Mode, id string, seqs ...int64) (ds []Delivery, err error) {
	if ss == nil {
		return nil, ErrNotSessionful
	}
	failure := ss.q.changes.withContents(func(has contents) (missing []int64) {
		err = ss.underLock(id, func(_ *Session, now instant) (err error) {
			if missing = ss.q.entries.missing(seqs, has); missing == nil {
				ds, err = ss.q.locks.receiveDeferred(mode, seqs, now, has, func(e *entry) bool { return e.sessionID == id })
			}
			return err
		})
		return missing
	})
	return ds, cmp.Or(failure, err)
}

// The functions below are where a message that belongs to a session and one that does not differ.

// wait makes e wait in its session.
func (ss *Sessions) wait(e *entry) {
	s := ss.byID[e.sessionID]
	s.waiting.add(e, arrival(e.seq))
	ss.offer(s)
	ss.touch(s)
}

// unwait is the opposite of wait.
func (ss *Sessions) unwait(e *entry) {
	s := ss.byID[e.sessionID]
	s.waiting.leave()
	ss.withdraw(s)
}

// lockOf is the lock of e's session, under which e is locked; nil when e does not belong to one.
func (ss *Sessions) lockOf(e *entry) *Session {
	if ss == nil {
		return nil
	}
	return ss.byID[e.sessionID].lock
}
