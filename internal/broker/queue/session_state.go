// SPDX-License-Identifier: Apache-2.0

package queue

import "time"

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

// State is the state of a session, nil when it has none. The caller must not change it.
// Errors: ErrSessionLockLost when nobody holds the lock of the session, ErrNotSessionful,
// ErrClosed.
func (ss *Sessions) State(id string) (state []byte, err error) {
	err = ss.underLock(id, func(h *Session, _ instant) error {
		if h.s.state != nil {
			state = h.s.state.data
		}
		return nil
	})
	return state, err
}

// SetState replaces the state of a session; an empty one clears it. The queue owns state
// from then on. It stays when the session has no messages any more. Errors: ErrSessionLockLost when
// nobody holds the lock of the session, ErrFull, ErrNotSessionful, ErrClosed.
func (ss *Sessions) SetState(id string, state []byte) error {
	h, err := ss.HoldState(id, state)
	if err != nil {
		return err
	}
	return h.Set()
}

// HeldState is a state that is to be set, and the space for it: a part of a transaction. Exactly
// one of Set and Cancel must follow.
type HeldState struct {
	h    *Session
	data []byte
	size int64 // reserved
}

// HoldState prepares SetState. Errors are the same. The lock of the session is not
// held meanwhile.
func (ss *Sessions) HoldState(id string, state []byte) (held *HeldState, err error) {
	err = ss.underLock(id, func(h *Session, _ instant) error {
		held = &HeldState{h: h, data: state}
		held.size = max(0, (&session{id: id, state: held.state(0)}).stateSize()-h.s.stateSize())
		if !ss.q.quota.take(held.size) {
			return ErrFull
		}
		return nil
	})
	return held, err
}

// state is nil for an empty one.
func (s *HeldState) state(now instant) *sessionState {
	if len(s.data) == 0 {
		return nil
	}
	return &sessionState{s.data, now}
}

// Possible reports whether Set would succeed: the lock under which it was prepared is still held.
func (s *HeldState) Possible() bool { return s.underLock(func(*session, instant) {}) == nil }

// Partition is Held.Partition.
func (s *HeldState) Partition() (p int64, one bool) {
	return s.h.q.numbers.keyedPartition(&Message{SessionID: s.h.s.id}), true
}

// Set does what HoldState has prepared. Errors: ErrSessionLockLost, ErrClosed.
func (s *HeldState) Set() error {
	err := s.underLock(func(in *session, now instant) {
		s.h.q.quota.add(s.h.q.sessions.setState(in, s.state(now)) - s.size)
	})
	if err != nil {
		s.Cancel()
	}
	return err
}

// setState gives s another state, nil: none. It returns by how many bytes that is larger, for which
// the caller has the space.
func (ss *Sessions) setState(s *session, state *sessionState) (grown int64) {
	before := s.stateSize()
	s.state = state
	ss.q.changes.noteState(s)
	grown = s.stateSize() - before
	ss.q.entries.size += grown
	return grown
}

// restoreState is for Queue.Restore.
func (ss *Sessions) restoreState(id string, data []byte, updatedAt instant) {
	s := ss.get(id)
	s.state = &sessionState{data, updatedAt}
	ss.q.quota.add(s.stateSize())
	ss.q.entries.size += s.stateSize()
}

func (s *HeldState) underLock(do func(*session, instant)) error {
	return s.h.q.sessions.underLock(s.h.s.id, func(h *Session, now instant) error {
		if h != s.h {
			return ErrSessionLockLost
		}
		do(h.s, now)
		return nil
	})
}

// Cancel releases the space.
func (s *HeldState) Cancel() { s.h.q.quota.add(-s.size) }

// List lists sessions in the order in which they came to be: at most top of them after the
// first skip. A zero updatedAfter means those with active messages, locked ones included, and those
// with a state; any other time, those with a state that was set after it. It changes nothing. A
// queue without sessions, or a closed one, has none.
func (ss *Sessions) List(updatedAfter time.Time, skip, top int) (ids []string) {
	now, err := ss.enter()
	if err != nil {
		return nil
	}
	defer ss.q.leave(now)
	ss.q.dispatch.assign(now) // what catching up gave back may be dead by now
	listed := func(s *session) bool {
		return s.state != nil || s.waiting.len() > 0 || s.held > 0 || s.lock != nil && s.lock.hasActive()
	}
	if !updatedAfter.IsZero() {
		after := instantOf(updatedAfter)
		listed = func(s *session) bool { return s.state != nil && s.state.updatedAt > after }
	}
	for s := ss.all.first; s != nil && len(ids) < top; s = s.links[slotAll].next {
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
