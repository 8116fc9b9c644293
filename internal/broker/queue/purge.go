// SPDX-License-Identifier: Apache-2.0

package queue

import "math"

// Purge removes every message of the queue and of its dead-letter queue, whatever its state, with
// the states of sessions and the message-ids by which duplicates are found. It returns what it has
// removed; a closed queue has nothing. Locks of sessions stay, and so do consumers and their credit.
//
// A message that is locked is gone for its holder, whose settlement is too late. One that a
// transaction holds is gone, too: the transaction goes on without it.
func (q *Queue) Purge() Counts {
	now, err := q.enter()
	if err != nil {
		return Counts{}
	}
	defer q.leave(now)
	n := q.count(now)
	for len(q.deadLetters.late) > 0 {
		q.deadLetters.admit(q.deadLetters.late[0], now)
		q.deadLetters.late = q.deadLetters.late[1:]
	}
	for dropped := 1; q.entries.byNumber.len() > 0; dropped++ {
		q.drop(q.entries.first())
		if dropped%wave == 0 {
			q.changes.report() // of a million messages one step would have some 400 MiB
		}
	}
	q.sessions.clearStates()
	q.intake.history.clear()
	if q.dead != nil {
		n.addDead(q.dead.Purge())
	}
	return n
}

// Delete removes the message with this sequence number, whatever its state, as Purge does. Errors:
// ErrMessageNotFound, ErrClosed.
func (q *Queue) Delete(seq int64) error {
	now, err := q.enter()
	if err != nil {
		return err
	}
	defer q.leave(now)
	e := q.entries.byNumber.get(seq)
	if e == nil {
		return &NumberError{ErrMessageNotFound, []int64{seq}}
	}
	q.drop(e)
	return nil
}

// drop takes e out of the queue for good, wherever it stands.
func (q *Queue) drop(e *entry) {
	switch {
	case e.state == Scheduled && e.held:
		e.held = false
		q.schedule.held--
	case e.state == Scheduled:
		q.schedule.heap.remove(e)
	case e.locked:
		if e.holder != nil {
			e.holder.lose(e)
		}
		q.locks.unlock(e)
	case e.waiting:
		q.waiting.remove(e)
	case e.state == Active: // see quirk.CleanupLate
		q.expiry.cleanup.remove(e)
	}
	q.entries.drop(e)
}

// first is the entry with the lowest sequence number; there has to be one.
func (es *entries) first() (first *entry) {
	es.byNumber.ascend(math.MinInt64, func(e *entry) bool {
		first = e
		return false
	})
	return first
}

// clearStates takes the states of all sessions.
func (ss *Sessions) clearStates() {
	if ss == nil {
		return
	}
	for s := ss.all.first; s != nil; {
		next := s.links[slotAll].next // tidy may forget s
		if s.state != nil {
			ss.q.quota.add(ss.setState(s, nil))
			ss.tidy(s)
		}
		s = next
	}
}

// clear forgets every message-id.
func (h *history) clear() {
	if h.len() == 0 {
		return
	}
	h.quota.add(-h.size)
	h.seen, h.line, h.head, h.size = nil, nil, 0, 0
	if h.changes.log != nil {
		h.changes.noteExpired(h.last + 1)
	}
}
