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
	touched   bool          // in Sessions.touched
	available bool          // in Sessions.available
	links     [sessionLists]sessionLink
	held      int // active messages that a transaction holds
}

// Sessions is the sessions of a queue; nil on a queue that has none, where all that can fail fails
// with ErrNotSessionful. The queue's mutex guards it.
type Sessions struct {
	q         *Queue
	byID      map[string]*session
	peak      int         // of len(byID) since the map was made
	all       sessionList // in the order in which they came to be
	available sessionList // unlocked with waiting messages, in the order in which they became so
	locks     sessionLocks
	waiters   waiters
	touched   []*session // locked ones with something to assign, or a consumer that can be given something
	receiving int        // consumers in line, of all sessions together
}

func newSessions(q *Queue) *Sessions {
	return &Sessions{
		q:         q,
		byID:      make(map[string]*session),
		all:       sessionList{slot: slotAll},
		available: sessionList{slot: slotAvailable},
	}
}

// A Session is the lock of one session and the right to receive from it. Its methods may be called
// from any goroutine.
type Session struct {
	q *Queue
	s *session

	// The rest is guarded by q.mu.
	until     instant
	pos       int       // in Sessions.locks
	locked    entryHeap // what was delivered under this lock, by sequence number
	consumers consumers
	over      bool
	lapsed    bool // it ended by time
}

// Accept takes the lock of a session, which need not have messages. The lock holds for
// Config.LockDuration; the messages received under it are locked as long as it is. Like a peek it
// moves nothing that has expired: only a receive does. Errors: ErrSessionLocked, ErrNotSessionful,
// ErrClosed.
func (ss *Sessions) Accept(id string) (*Session, error) {
	now, err := ss.enter()
	if err != nil {
		return nil, err
	}
	defer ss.q.leave(now)
	if s := ss.byID[id]; s != nil && s.lock != nil {
		return nil, ErrSessionLocked
	}
	return ss.lock(ss.get(id), now), nil
}

// enter is Queue.enter for what only session queues can do.
func (ss *Sessions) enter() (now instant, err error) {
	if ss == nil {
		return 0, ErrNotSessionful
	}
	return ss.q.enter()
}

// get is the session with this name, made when there is none. A caller that makes one gives it a
// message or a lock.
func (ss *Sessions) get(id string) *session {
	s := ss.byID[id]
	if s == nil {
		t := &ss.q.entries.table
		s = &session{
			id:       id,
			byNumber: index{table: t},
			waiting:  newLazyHeap(t, itemWaiting),
		}
		ss.byID[id] = s
		ss.peak = max(ss.peak, len(ss.byID))
		ss.all.push(s)
	}
	return s
}

// tidy forgets s when it is empty.
func (ss *Sessions) tidy(s *session) {
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

// lock gives the lock of s, which must be free, to a new holder.
func (ss *Sessions) lock(s *session, now instant) *Session {
	if s.available {
		ss.available.remove(s)
		s.available = false
	}
	h := &Session{
		q:         ss.q,
		s:         s,
		until:     now.add(ss.q.cfg.LockDuration),
		locked:    entryHeap{table: &ss.q.entries.table},
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

// NewConsumer makes a consumer of the session's messages, without credit. It is closed when the
// lock ends; one made after that is closed from the start.
func (h *Session) NewConsumer(mode Mode) *Consumer {
	return newConsumer(h.q, mode, &h.consumers, func() bool { return h.over })
}

// RenewLock extends the lock of a session to Config.LockDuration from now, for every holder.
// Errors: ErrSessionLockLost, ErrNotSessionful, ErrClosed.
func (ss *Sessions) RenewLock(id string) (until time.Time, err error) {
	err = ss.underLock(id, func(h *Session, now instant) error {
		until = h.renew(now)
		return nil
	})
	return until, err
}

// LockedUntil is when the lock of a session lapses, for every holder. Errors:
// ErrSessionLockLost when nobody does, ErrNotSessionful, ErrClosed.
func (ss *Sessions) LockedUntil(id string) (until time.Time, err error) {
	err = ss.underLock(id, func(h *Session, _ instant) error {
		until = h.until.time()
		return nil
	})
	return until, err
}

// underLock calls do with the lock of the session that is called id, in a critical section. Errors:
// ErrSessionLockLost when nobody holds it, ErrNotSessionful, ErrClosed, and those of do.
func (ss *Sessions) underLock(id string, do func(*Session, instant) error) error {
	now, err := ss.enter()
	if err != nil {
		return err
	}
	defer ss.q.leave(now)
	s := ss.byID[id]
	if s == nil || s.lock == nil {
		return ErrSessionLockLost
	}
	return do(s.lock, now)
}

func (h *Session) renew(now instant) time.Time {
	h.until = now.add(h.q.cfg.LockDuration)
	heap.Fix(&h.q.sessions.locks, h.pos)
	for e := range h.locked.all() {
		e.lockedUntil = h.until
	}
	return h.until.time()
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
		q.locks.giveBack(e, failed && e.holder == nil, now)
	}
	s.lock = nil
	h.over = true
	ss.offer(s)
	ss.tidy(s)
}

// sessionGrace is for how long a lock holds beyond the end that its holder knows. A client that
// waits for messages as long as the lock lasts stops waiting before it loses the lock. Two of the
// Python SDK's live tests of sessions with receive-and-delete expect that.
const sessionGrace = 500 * time.Millisecond

// lapse ends the locks that are due. A delivery under such a lock has failed.
func (ss *Sessions) lapse(now instant) {
	for ss.next() <= now {
		ss.locks[0].end(true, now)
	}
}

// next is when a lock is due.
func (ss *Sessions) next() instant {
	if ss == nil || len(ss.locks) == 0 {
		return never
	}
	return ss.locks[0].until.add(sessionGrace)
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
func (ss *Sessions) closeAll() {
	if ss == nil {
		return
	}
	for _, h := range ss.locks {
		h.consumers.closeAll()
		h.over = true
	}
	for _, w := range ss.waiters {
		close(w.ch)
	}
	*ss = *newSessions(ss.q)
}

// A session can stand in two lists at once; slot says which of its two pairs of links a list uses.
const (
	slotAll       = iota // sessions.all
	slotAvailable        // sessions.available
	sessionLists
)

// sessionLink is the neighbours of a session in one list.
type sessionLink struct{ prev, next *session }

// A sessionList is a doubly linked list through its sessions: adding at the end and taking out
// anywhere cost the same however long it is, and nothing is allocated.
type sessionList struct {
	slot        int
	first, last *session
}

func (l *sessionList) push(s *session) {
	s.links[l.slot] = sessionLink{prev: l.last}
	if l.last == nil {
		l.first = s
	} else {
		l.last.links[l.slot].next = s
	}
	l.last = s
}

// remove takes out s, which must be in this list.
func (l *sessionList) remove(s *session) {
	at := s.links[l.slot]
	s.links[l.slot] = sessionLink{}
	if at.prev == nil {
		l.first = at.next
	} else {
		at.prev.links[l.slot].next = at.next
	}
	if at.next == nil {
		l.last = at.prev
	} else {
		at.next.links[l.slot].prev = at.prev
	}
}
