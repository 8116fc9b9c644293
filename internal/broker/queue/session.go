// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"container/heap"
	"time"
)

// A session is what a session queue knows of one session. It exists as long as it has messages, a
// state or a lock.
type session struct {
	id        string
	byNumber  index         // all its messages
	waiting   lazyHeap      // those active and unlocked
	lock      *Session      // nil: nobody has it
	state     *sessionState // nil: none
	touched   bool          // in sessions.touched
	available bool          // in sessions.available
	links     [sessionLists]sessionLink
	held      int // active messages that a transaction holds
}

// sessions is the sessions of a queue. The queue's mutex guards it.
type sessions struct {
	byID      map[string]*session
	peak      int         // of len(byID) since the map was made
	all       sessionList // in the order in which they came to be
	available sessionList // unlocked with waiting messages, in the order in which they became so
	locks     sessionLocks
	waiters   waiters
	touched   []*session // locked ones with something to assign, or a consumer that can be given something
	receiving int        // consumers in line, of all sessions together
}

func newSessions() *sessions {
	return &sessions{
		byID:      make(map[string]*session),
		all:       sessionList{slot: slotAll},
		available: sessionList{slot: slotAvailable},
	}
}

// A Session is the lock of one session and the right to receive from it. Its methods may be called
// from any goroutine.
type Session struct {
	q    *Queue
	s    *session
	lost chan struct{}

	// The rest is guarded by q.mu.
	until     instant
	pos       int       // in sessions.locks
	locked    entryHeap // what was delivered under this lock, by sequence number
	consumers consumers
	over      bool
	lapsed    bool // it ended by time
}

// AcceptSession takes the lock of a session, which need not have messages. The lock holds for
// Config.LockDuration; the messages received under it are locked as long as it is. Like a peek it
// moves nothing that has expired: only a receive does. Errors: ErrSessionLocked, ErrNotSessionful,
// ErrClosed.
func (q *Queue) AcceptSession(id string) (*Session, error) {
	now, err := q.enterSessions()
	if err != nil {
		return nil, err
	}
	defer q.leave(now)
	if s := q.sessions.byID[id]; s != nil && s.lock != nil {
		return nil, ErrSessionLocked
	}
	return q.lockSession(q.session(id), now), nil
}

// enterSessions is enter for what only session queues can do.
func (q *Queue) enterSessions() (now instant, err error) {
	if q.sessions == nil {
		return 0, ErrNotSessionful
	}
	return q.enter()
}

// session is the session with this name, made when there is none. A caller that makes one gives it
// a message or a lock.
func (q *Queue) session(id string) *session {
	ss := q.sessions
	s := ss.byID[id]
	if s == nil {
		s = &session{id: id, byNumber: q.newIndex(), waiting: q.newLazyHeap(itemWaiting)}
		ss.byID[id] = s
		ss.peak = max(ss.peak, len(ss.byID))
		ss.all.push(s)
	}
	return s
}

// tidy forgets s when it is empty.
func (ss *sessions) tidy(s *session) {
	if s.byNumber.len() > 0 || s.lock != nil || s.state != nil {
		return
	}
	ss.all.remove(s)
	delete(ss.byID, s.id)
	// A map does not shrink by itself. Copying a quarter is paid by the removal of the rest.
	if n := len(ss.byID); ss.peak > 4096 && n < ss.peak/4 {
		byID := make(map[string]*session, n)
		for s := ss.all.first; s != nil; s = s.links[slotAll].next {
			byID[s.id] = s
		}
		ss.byID, ss.peak = byID, n
	}
}

// lockSession gives the lock of s, which must be free, to a new holder.
func (q *Queue) lockSession(s *session, now instant) *Session {
	ss := q.sessions
	if s.available {
		ss.available.remove(s)
		s.available = false
	}
	h := &Session{
		q:         q,
		s:         s,
		lost:      make(chan struct{}),
		until:     now.add(q.cfg.LockDuration),
		locked:    q.newHeap(),
		consumers: consumers{session: s, sessions: ss},
	}
	s.lock = h
	heap.Push(&ss.locks, h)
	return h
}

// ID is the name of the session; "" is one.
func (h *Session) ID() string { return h.s.id }

// LockedUntil is when the lock lapses unless it is renewed, by the broker's clock.
func (h *Session) LockedUntil() time.Time {
	h.q.mu.Lock()
	defer h.q.mu.Unlock()
	return h.until.time()
}

// Lapsed reports whether the lock ended by time, and not because h or the queue was closed.
func (h *Session) Lapsed() bool {
	h.q.mu.Lock()
	defer h.q.mu.Unlock()
	return h.lapsed
}

// Lost is closed when the session is no longer locked by h: the lock lapsed, or h or the queue was
// closed.
func (h *Session) Lost() <-chan struct{} { return h.lost }

// NewConsumer makes a consumer of the session's messages, without credit. It is closed when the
// lock ends; one made after that is closed from the start.
func (h *Session) NewConsumer(mode Mode) *Consumer {
	return h.q.newConsumer(mode, &h.consumers, func() bool { return h.over })
}

// RenewSessionLock extends the lock of a session to Config.LockDuration from now, for every holder.
// Errors: ErrSessionLockLost, ErrNotSessionful, ErrClosed.
func (q *Queue) RenewSessionLock(id string) (until time.Time, err error) {
	err = q.underLock(id, func(h *Session, now instant) (err error) {
		until, err = h.renew(now)
		return err
	})
	return until, err
}

// SessionLockedUntil is when the lock of a session lapses, for every holder. Errors:
// ErrSessionLockLost when nobody does, ErrNotSessionful, ErrClosed.
func (q *Queue) SessionLockedUntil(id string) (until time.Time, err error) {
	err = q.underLock(id, func(h *Session, _ instant) error {
		until = h.until.time()
		return nil
	})
	return until, err
}

// underLock calls do with the lock of the session that is called id, in a critical section. Errors:
// ErrSessionLockLost when nobody holds it, ErrNotSessionful, ErrClosed, and those of do.
func (q *Queue) underLock(id string, do func(*Session, instant) error) error {
	now, err := q.enterSessions()
	if err != nil {
		return err
	}
	defer q.leave(now)
	s := q.sessions.byID[id]
	if s == nil || s.lock == nil {
		return ErrSessionLockLost
	}
	return do(s.lock, now)
}

func (h *Session) renew(now instant) (time.Time, error) {
	if h.over {
		return time.Time{}, ErrSessionLockLost
	}
	h.until = now.add(h.q.cfg.LockDuration)
	heap.Fix(&h.q.sessions.locks, h.pos)
	for e := range h.locked.all() {
		e.lockedUntil = h.until
	}
	return h.until.time(), nil
}

// Close gives the lock up. Messages that were received and not settled go back to the session and
// their deliveries do not count as failed. Closing what is closed or lost does nothing.
func (h *Session) Close() {
	now, err := h.q.enter()
	if err != nil {
		return
	}
	defer h.q.leave(now)
	if !h.over {
		h.end(false, now)
	}
}

// end takes the lock from h and gives back what was received under it. Messages that still lie in
// an outbox were never delivered, so they do not count as failed.
func (h *Session) end(failed bool, now instant) {
	q, s, ss := h.q, h.s, h.q.sessions
	heap.Remove(&ss.locks, h.pos)
	h.lapsed = failed
	h.consumers.closeAll()
	for e, _ := h.locked.min(); e != nil; e, _ = h.locked.min() {
		q.giveBack(e, failed && e.holder == nil, now)
	}
	s.lock = nil
	h.finish()
	ss.offer(s)
	ss.tidy(s)
}

// finish notifies the holder.
func (h *Session) finish() {
	h.over = true
	close(h.lost)
}

// sessionGrace is for how long a lock holds beyond the end that its holder knows. A client that
// waits for messages as long as the lock lasts stops waiting before it loses the lock. Two of the
// Python SDK's live tests of sessions with receive-and-delete expect that.
const sessionGrace = 500 * time.Millisecond

// lapseSessions ends the locks that are due. A delivery under such a lock has failed.
func (q *Queue) lapseSessions(now instant) {
	for len(q.sessions.locks) > 0 && q.sessions.locks[0].until.add(sessionGrace) <= now {
		q.sessions.locks[0].end(true, now)
	}
}

// sessionLocks is a heap of the locks held, by their end; those that end together, by session.
type sessionLocks []*Session

func (l sessionLocks) Len() int { return len(l) }
func (l sessionLocks) Less(i, j int) bool {
	return l[i].until < l[j].until || l[i].until == l[j].until && l[i].s.id < l[j].s.id
}
func (l sessionLocks) Swap(i, j int) {
	l[i], l[j] = l[j], l[i]
	l[i].pos, l[j].pos = i, j
}

func (l *sessionLocks) Push(x any) {
	h := x.(*Session)
	h.pos = len(*l)
	*l = append(*l, h)
}

func (l *sessionLocks) Pop() any {
	last := len(*l) - 1
	h := (*l)[last]
	(*l)[last] = nil
	*l = (*l)[:last]
	return h
}

// closeAll is for the end of the queue.
func (ss *sessions) closeAll() {
	if ss == nil {
		return
	}
	for _, h := range ss.locks {
		h.consumers.closeAll()
		h.finish()
	}
	for _, w := range ss.waiters {
		close(w.ch)
	}
	*ss = *newSessions()
}
