// SPDX-License-Identifier: Apache-2.0

package queue

import "time"

// MaxSessionStateSize bounds the state of one session, in bytes.
const MaxSessionStateSize = 1 << 20

// sessionStateOverhead is what a session that has nothing but an empty state costs in memory. It
// counts towards the size of the queue, or else states would have no bound.
const sessionStateOverhead = 512

// sessionState is what the holders of a session leave for each other. It is replaced, not changed.
type sessionState struct {
	data      []byte
	updatedAt instant
}

func (s *session) stateSize() int64 {
	if s.state == nil {
		return 0
	}
	return sessionStateOverhead + int64(len(s.id)+len(s.state.data))
}

// SessionState is the state of a session, nil when it has none. The caller must not change it.
// Errors: ErrSessionLockLost when nobody holds the lock of the session, ErrNotSessionful,
// ErrClosed.
func (q *Queue) SessionState(id string) ([]byte, error) {
	now, err := q.enterSessions()
	if err != nil {
		return nil, err
	}
	defer q.leave(now)
	s := q.sessions.byID[id]
	if s == nil || s.lock == nil {
		return nil, ErrSessionLockLost
	}
	if s.state == nil {
		return nil, nil
	}
	return s.state.data, nil
}

// SetSessionState replaces the state of a session; an empty one clears it. The queue owns state
// from then on. It stays when the session has no messages any more. Errors: ErrSessionLockLost when
// nobody holds the lock of the session, ErrSessionStateTooLarge, ErrFull, ErrNotSessionful,
// ErrClosed.
func (q *Queue) SetSessionState(id string, state []byte) error {
	if len(state) > MaxSessionStateSize {
		return ErrSessionStateTooLarge
	}
	now, err := q.enterSessions()
	if err != nil {
		return err
	}
	defer q.leave(now)
	s := q.sessions.byID[id]
	if s == nil || s.lock == nil {
		return ErrSessionLockLost
	}
	next := &sessionState{state, now}
	if len(state) == 0 {
		next = nil
	}
	before := s.state
	size := s.stateSize()
	s.state = next
	grown := s.stateSize() - size
	if grown <= 0 {
		q.quota.add(grown)
	} else if !q.quota.take(grown) {
		s.state = before
		return ErrFull
	}
	q.size += grown
	return nil
}

// Sessions lists sessions in the order in which they came to be: at most top of them after the
// first skip. A zero updatedAfter means those with active messages, locked ones included, and those
// with a state; any other time, those with a state that was set after it. It changes nothing. A
// queue without sessions, or a closed one, has none.
func (q *Queue) Sessions(updatedAfter time.Time, skip, top int) (ids []string) {
	now, err := q.enterSessions()
	if err != nil {
		return nil
	}
	defer q.leave(now)
	q.assign(now) // what catching up gave back may be dead by now
	listed := func(s *session) bool {
		return s.state != nil || s.waiting.len() > 0 || s.held > 0 || s.lock != nil && s.lock.hasActive()
	}
	if !updatedAfter.IsZero() {
		after := instantOf(updatedAfter)
		listed = func(s *session) bool { return s.state != nil && s.state.updatedAt > after }
	}
	for s := q.sessions.all.first; s != nil && len(ids) < top; s = s.links[slotAll].next {
		if !listed(s) {
			continue
		}
		if skip > 0 {
			skip--
			continue
		}
		ids = append(ids, s.id)
	}
	return ids
}

// hasActive: an active message was delivered under h. Deferred ones do not count as long as they
// are set aside.
func (h *Session) hasActive() bool {
	for e := range h.locked.all() {
		if e.state == Active {
			return true
		}
	}
	return false
}
