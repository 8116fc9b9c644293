// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"encoding/binary"
	"fmt"
	"time"

	"overdue/internal/broker/quirk"
)

// lock takes e, which must not be waiting any more, for one delivery. A token is for those who
// settle: without one the lock only keeps the message from others.
func (q *Queue) lock(e *entry, mode Mode, now instant) {
	e.locked = true
	locks, key, until := q.lockedWith(e, now)
	e.lockedUntil = until
	locks.push(e, key)
	if mode == PeekLock {
		e.token = q.newToken()
		q.tokens[e.token] = e
		q.tokenPeak = max(q.tokenPeak, len(q.tokens))
	}
}

// unlock ends the lock and leaves e nowhere but in the index.
func (q *Queue) unlock(e *entry) {
	if e.held {
		q.setHeld(e, false)
	} else {
		locks, _, _ := q.lockedWith(e, 0)
		locks.remove(e)
	}
	if e.token != (LockToken{}) {
		delete(q.tokens, e.token)
		e.token = LockToken{}
		q.shrinkTokens()
	}
	e.locked, e.holder = false, nil
}

// newToken is a random UUID, version 4.
func (q *Queue) newToken() (t LockToken) {
	binary.BigEndian.PutUint64(t[:8], q.random.Uint64())
	binary.BigEndian.PutUint64(t[8:], q.random.Uint64())
	t[6] = t[6]&0x0f | 0x40
	t[8] = t[8]&0x3f | 0x80
	return t
}

// shrinkTokens gives the memory of the map back after a peak, which the map itself never does.
func (q *Queue) shrinkTokens() {
	if len(q.tokens) == 0 && q.tokenPeak > 4096 {
		q.tokens, q.tokenPeak = make(map[LockToken]*entry), 0
	}
}

// giveBack ends the lock of e without settling it. It returns to its original place, unless it has
// expired meanwhile, which then takes effect at once, or has failed too often. Failures are checked
// second, and only when this delivery counts as failed, so that a message to which both happened
// has expiry as its reason. A deferred message stays deferred.
func (q *Queue) giveBack(e *entry, failed bool, now instant) {
	q.unlock(e)
	spent := failed && q.countDelivery(e)
	switch {
	case q.expiry.expired(e, now):
		q.expiry.expire(e)
	case spent:
		q.deadLetters.add(e, reasonMaxDelivery, q.maxDeliveryDescription())
	case e.state == Active:
		q.waiting.add(e)
	}
}

// release gives e back for the outcome released.
func (q *Queue) release(e *entry, now instant) {
	q.giveBack(e, q.cfg.Quirks.Has(quirk.ReleaseCounts), now)
	if !q.cfg.Quirks.Has(quirk.ReleaseLast) || q.entries.byNumber.get(e.seq) != e || e.state != Active {
		return // it has expired, was delivered too often, or is deferred
	}
	q.waiting.move(e, q.numbers.nextArrival()) // nothing else has this place
}

// countDelivery counts a delivery that did not complete the message, and reports whether that was
// the last it may have.
func (q *Queue) countDelivery(e *entry) (spent bool) {
	if q.cfg.frozen {
		return false
	}
	e.count++
	return int(e.count) >= q.cfg.MaxDeliveryCount
}

// lapse ends the locks that are due. A delivery that was never taken out of the outbox did not
// fail; it was not made.
func (q *Queue) lapse(now instant) {
	for q.locks.next() <= now {
		e, _ := q.locks.min()
		c := e.holder
		if c != nil {
			c.lose(e)
		}
		q.giveBack(e, c == nil, now)
	}
}

// RenewLock extends a lock to LockDuration from now and says until when it holds. Errors:
// ErrLockLost; in a session queue, where the lock of the session is the one to renew,
// ErrLockedBySession; ErrClosed.
func (q *Queue) RenewLock(t LockToken) (time.Time, error) {
	until, err := q.RenewLocks([]LockToken{t})
	if err != nil {
		return time.Time{}, err
	}
	return until[0], nil
}

// RenewLocks renews all locks or, when one of them is lost, none. Errors: see RenewLock.
func (q *Queue) RenewLocks(ts []LockToken) ([]time.Time, error) {
	now, err := q.enter()
	if err != nil {
		return nil, err
	}
	defer q.leave(now)
	for _, t := range ts {
		if q.tokens[t] == nil {
			return nil, ErrLockLost
		}
	}
	if q.sessions != nil {
		return nil, ErrLockedBySession
	}
	until := now.add(q.cfg.LockDuration)
	times := make([]time.Time, len(ts))
	for i, t := range ts {
		e := q.tokens[t]
		e.lockedUntil = until
		if !e.held {
			q.locks.move(e, int64(until))
		}
		times[i] = until.time()
	}
	return times, nil
}

func (q *Queue) maxDeliveryDescription() string {
	return fmt.Sprintf("Message could not be consumed after %d delivery attempts.", q.cfg.MaxDeliveryCount)
}
