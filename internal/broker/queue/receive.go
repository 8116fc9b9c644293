// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"cmp"
	"time"
)

// Peek appends to dst up to max messages from sequence number from upwards, from included:
// everything that exists, waiting, locked, deferred, scheduled, or expired and not moved yet. It
// changes nothing; above all it is no receive that would move the expired. A closed queue has no
// messages. Where contents have to be read from the log, there are fewer messages when these are
// large, but one at least. Errors: those of the log.
func (q *Queue) Peek(dst []View, from int64, max int) (views []View, err error) {
	return q.peek(dst, false, from, max)
}

// PeekBack is Peek from sequence number from downwards, from included: the highest number first.
func (q *Queue) PeekBack(dst []View, from int64, max int) (views []View, err error) {
	return q.peek(dst, true, from, max)
}

func (q *Queue) peek(dst []View, back bool, from int64, max int) (views []View, err error) {
	if max <= 0 {
		return dst, nil
	}
	err = q.changes.withContents(func(has contents) (missing []int64) {
		views = dst
		now, err := q.enter()
		if err != nil {
			return nil
		}
		defer q.leave(now)
		// Messages that catching up gave back may belong to a consumer or be dead by now.
		q.dispatch.assign(now)
		views, missing = q.entries.peek(dst, &q.entries.byNumber, back, from, max, has)
		return missing
	})
	return views, err
}

// ContentSize is how many bytes the contents of the messages with these sequence numbers have
// together.
func (q *Queue) ContentSize(seqs ...int64) (size int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, seq := range seqs {
		if e := q.entries.byNumber.get(seq); e != nil {
			size += int(e.contentSize)
		}
	}
	return size
}

// ReceiveDeferred locks the deferred messages with these sequence numbers, or removes them, as mode
// says; all or none. That counts nothing: the defer did. In a peek they stay deferred,
// and stay so when abandoned or released. A deferred message that has expired is only noticed here:
// it is dead-lettered or dropped, and the call fails. Errors: those of the log; ErrClosed;
// ErrMessageNotFound when one of them is not deferred, is locked, expired or named twice.
// ErrSessionLockLost: nobody holds the session lock of one of them.
func (q *Queue) ReceiveDeferred(mode Mode, seqs ...int64) (ds []Delivery, err error) {
	failure := q.changes.withContents(func(has contents) (missing []int64) {
		now, failure := q.enter()
		if err = failure; err != nil {
			return nil
		}
		defer q.leave(now)
		if missing = q.entries.missing(seqs, has); missing == nil {
			ds, err = q.locks.receiveDeferred(mode, seqs, now, has, func(*entry) bool { return true })
		}
		return missing
	})
	return ds, cmp.Or(failure, err)
}

// DeleteBatch removes up to limit messages that wait and were enqueued at before or earlier, the
// oldest first, and says how many. With a session id it only removes those of that session. It is a
// receive as far as expiry goes: what has expired is moved as Config.Expiry says, and not counted.
// Locked, deferred and scheduled messages stay. Errors: ErrClosed.
func (q *Queue) DeleteBatch(limit int, before time.Time, sessionID *string) (int, error) {
	now, err := q.enter()
	if err != nil {
		return 0, err
	}
	defer q.leave(now)
	q.dispatch.assign(now) // what catching up gave back may belong to a consumer
	for q.cfg.Expiry != LazyHead && !q.expiry.flushWave(now) {
	}
	until := instantOf(before)
	deleted := 0
	var others []*entry // of other sessions
	oldest := q.waiting.oldest(sessionID)
	for deleted < limit {
		e := oldest()
		if e == nil || e.enqueuedAt > until {
			break
		}
		switch {
		case q.expiry.expired(e, now):
			q.expiry.cleanUp(e, now)
		case sessionID != nil && e.sessionID != *sessionID:
			q.waiting.remove(e)
			others = append(others, e)
		default:
			q.waiting.remove(e)
			q.entries.drop(e)
			deleted++
		}
	}
	for _, e := range others {
		q.waiting.add(e)
	}
	return deleted, nil
}
