// SPDX-License-Identifier: Apache-2.0

package queue

import "slices"

// waiters is those who wait for a session, the first to come in front.
type waiters []*waiter

// A waiter gets a session through ch, which has room for one, and is out of waiters then. The
// channel is closed when the queue is.
type waiter struct{ ch chan *Session }

// Next takes the lock of the next session that has active messages and is not locked, and waits
// until there is one. Waiting callers are served in the order in which they came. Sessions are
// offered in the order in which they became available, so that a busy one does not starve the
// others. Messages that have expired and were not moved yet make a session available, too:
// accepting is no receive. Once cancel is closed, no session is taken any more. Errors:
// ErrCanceled, ErrNotSessionful, ErrClosed.
func (ss *Sessions) Next(cancel <-chan struct{}) (*Session, error) {
	w, err := ss.await()
	if err != nil {
		return nil, err
	}
	select {
	case h, ok := <-w.ch:
		if !ok {
			return nil, ErrClosed
		}
		select {
		case <-cancel: // both at once, and nobody is there to use it
			h.Close()
			return nil, ErrCanceled
		default:
			return h, nil
		}
	case <-cancel:
		ss.forgo(w)
		return nil, ErrCanceled
	}
}

// await makes a waiter, which may have its session already.
func (ss *Sessions) await() (*waiter, error) {
	now, err := ss.enter()
	if err != nil {
		return nil, err
	}
	w := &waiter{ch: make(chan *Session, 1)}
	ss.waiters = append(ss.waiters, w)
	ss.q.leave(now)
	return w, nil
}

// forgo makes w wait no more, and gives back what it was given meanwhile.
func (ss *Sessions) forgo(w *waiter) {
	now, err := ss.enter()
	if err != nil {
		return
	}
	defer ss.q.leave(now)
	ws := &ss.waiters
	if i := slices.Index(*ws, w); i >= 0 {
		*ws = slices.Delete(*ws, i, i+1)
		return
	}
	if h := <-w.ch; !h.over {
		h.end(false, now)
	}
}

// offer puts s among the available when it has become so.
func (ss *Sessions) offer(s *session) {
	if s.lock == nil && !s.available && s.waiting.len() > 0 {
		ss.available.push(s)
		s.available = true
	}
}

// withdraw is the opposite of offer.
func (ss *Sessions) withdraw(s *session) {
	if s.available && s.waiting.len() == 0 {
		ss.available.remove(s)
		s.available = false
	}
}

// serveWaiters gives available sessions to those who wait.
func (ss *Sessions) serveWaiters(now instant) {
	for len(ss.waiters) > 0 && ss.available.first != nil {
		w := ss.waiters[0]
		ss.waiters[0] = nil
		ss.waiters = ss.waiters[1:]
		w.ch <- ss.lock(ss.available.first, now)
	}
}

// touch makes the next assign look at s.
func (ss *Sessions) touch(s *session) {
	if s.lock != nil && !s.touched {
		s.touched = true
		ss.touched = append(ss.touched, s)
	}
}
