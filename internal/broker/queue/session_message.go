// SPDX-License-Identifier: Apache-2.0

package queue

// PeekSession is Peek for the messages of one session. It needs no lock.
func (q *Queue) PeekSession(dst []View, id string, from int64, max int) []View {
	if max <= 0 {
		return dst
	}
	now, err := q.enterSessions()
	if err != nil {
		return dst
	}
	defer q.leave(now)
	q.assign(now) // as in Peek
	if s := q.sessions.byID[id]; s != nil {
		dst = q.peek(dst, &s.byNumber, from, max)
	}
	return dst
}

// ReceiveSessionDeferred is ReceiveDeferred for the messages of one session, whose lock must be
// held: they are locked as long as it is. Errors: those of ReceiveDeferred, also ErrMessageNotFound
// for a message of another session; ErrSessionLockLost, ErrNotSessionful.
func (q *Queue) ReceiveSessionDeferred(mode Mode, id string, seqs ...int64) (ds []Delivery, err error) {
	err = q.underLock(id, func(_ *Session, now instant) error {
		ds, err = q.receiveDeferred(mode, seqs, now, func(e *entry) bool { return e.sessionID == id })
		return err
	})
	return ds, err
}

// The functions below are where a message that belongs to a session and one that does not differ.

// enlist puts e in the index, and its session's.
func (q *Queue) enlist(e *entry) {
	q.entries.add(e)
	q.byNumber.insert(e)
	if q.sessions != nil {
		q.session(e.sessionID).byNumber.insert(e)
	}
}

// strike is the opposite of enlist.
func (q *Queue) strike(e *entry) {
	q.byNumber.remove(e.seq)
	if q.sessions != nil {
		s := q.sessions.byID[e.sessionID]
		s.byNumber.remove(e.seq)
		q.sessions.tidy(s)
	}
	q.entries.remove(e)
	e.items = 0
}

// wait makes e wait in its session.
func (ss *sessions) wait(e *entry) {
	s := ss.byID[e.sessionID]
	s.waiting.add(e, arrival(e.seq))
	ss.offer(s)
	ss.touch(s)
}

// unwait is the opposite of wait.
func (ss *sessions) unwait(e *entry) {
	s := ss.byID[e.sessionID]
	s.waiting.leave()
	ss.withdraw(s)
}

// oldestWaiting yields the first of those who wait, as often as it is called; the caller makes it
// wait no more. In a session queue with a session id it yields those of that session alone.
func (q *Queue) oldestWaiting(sessionID *string) func() *entry {
	if q.sessions != nil && sessionID == nil {
		var from int64
		return func() (found *entry) {
			q.byNumber.ascend(from, func(e *entry) bool {
				if e.waiting {
					found, from = e, e.seq+1
				}
				return found == nil
			})
			return found
		}
	}
	waiting := &q.waiting
	if q.sessions != nil {
		s := q.sessions.byID[*sessionID]
		if s == nil {
			return func() *entry { return nil }
		}
		waiting = &s.waiting
	}
	return waiting.min
}

// sessionLock is the lock of e's session, under which e is locked; nil when e does not belong to
// one.
func (q *Queue) sessionLock(e *entry) *Session {
	if q.sessions == nil {
		return nil
	}
	return q.sessions.byID[e.sessionID].lock
}

// lockedWith is where e stands while it is locked, with its place there and the end of its lock.
func (q *Queue) lockedWith(e *entry, now instant) (h *entryHeap, key int64, until instant) {
	if lock := q.sessionLock(e); lock != nil {
		return &lock.locked, arrival(e.seq), lock.until
	}
	until = now.add(q.cfg.LockDuration)
	return &q.locks, int64(until), until
}
