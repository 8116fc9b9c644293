// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"encoding/binary"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"time"

	"overdue/internal/broker/quirk"
)

// locks is the locks of messages, and what becomes of a message when its lock ends.
type locks struct {
	cfg         *settings
	entries     *entries
	numbers     *numbers
	sessions    *Sessions
	waiting     *waiting
	expiry      *expiry
	deadLetters *deadLetters
	changes     *changes

	heap      entryHeap // by lockedUntil; those of a session are in Session.locked
	tokens    map[LockToken]*entry
	tokenPeak int // of len(tokens) since the map was made
	random    *mathrand.ChaCha8
}

// lock takes e, which must not be waiting any more, for one delivery. A token is for those who
// settle: without one the lock only keeps the message from others.
func (l *locks) lock(e *entry, mode Mode, now instant) {
	e.locked = true
	heap, key, until := l.lockedWith(e, now)
	e.lockedUntil = until
	heap.push(e, key)
	if mode != ReceiveAndDelete {
		e.token = l.newToken()
		l.tokens[e.token] = e
		l.tokenPeak = max(l.tokenPeak, len(l.tokens))
	}
}

// unlock ends the lock and leaves e nowhere but in the index.
func (l *locks) unlock(e *entry) {
	if e.held {
		l.setHeld(e, false)
	} else {
		heap, _, _ := l.lockedWith(e, 0)
		heap.remove(e)
	}
	if e.token != (LockToken{}) {
		delete(l.tokens, e.token)
		e.token = LockToken{}
		l.shrinkTokens()
	}
	if e.taken() {
		e.kept &^= keptRemoved
		l.changes.note(e)
	}
	e.locked, e.holder = false, nil
}

// newToken is a random UUID, version 4.
func (l *locks) newToken() (t LockToken) {
	binary.BigEndian.PutUint64(t[:8], l.random.Uint64())
	binary.BigEndian.PutUint64(t[8:], l.random.Uint64())
	t[6] = t[6]&0x0f | 0x40
	t[8] = t[8]&0x3f | 0x80
	return t
}

// shrinkTokens gives the memory of the map back after a peak, which the map itself never does.
func (l *locks) shrinkTokens() {
	if len(l.tokens) == 0 && l.tokenPeak > 4096 {
		l.tokens, l.tokenPeak = make(map[LockToken]*entry), 0
	}
}

// giveBack ends the lock of e without settling it. It returns to its original place, unless it has
// expired meanwhile, which then takes effect at once, or has failed too often. Failures are checked
// second, and only when this delivery counts as failed, so that a message to which both happened
// has expiry as its reason. A deferred message stays deferred.
func (l *locks) giveBack(e *entry, failed bool, now instant) {
	l.unlock(e)
	spent := failed && l.countDelivery(e)
	switch {
	case l.expiry.expired(e, now):
		l.expiry.expire(e)
	case spent:
		l.deadLetters.add(e, ReasonMaxDelivery, l.maxDeliveryDescription())
	case e.state == Active:
		l.waiting.add(e)
	}
}

// release gives e back for the outcome released.
func (l *locks) release(e *entry, now instant) {
	l.giveBack(e, l.cfg.Quirks.Has(quirk.ReleaseCounts), now)
	if !l.cfg.Quirks.Has(quirk.ReleaseLast) || l.entries.byNumber.get(e.seq) != e || e.state != Active {
		return // it has expired, was delivered too often, or is deferred
	}
	l.waiting.move(e, l.numbers.nextArrival()) // nothing else has this place
}

// countDelivery counts a delivery that did not complete the message, and reports whether that was
// the last it may have.
func (l *locks) countDelivery(e *entry) (spent bool) {
	if l.cfg.frozen {
		return false
	}
	e.count++
	l.changes.note(e)
	return int(e.count) >= l.cfg.MaxDeliveryCount
}

// lapse ends the locks that are due. A delivery that was never taken out of the outbox did not
// fail; it was not made.
func (l *locks) lapse(now instant) {
	for l.heap.next() <= now {
		e, _ := l.heap.min()
		c := e.holder
		if c != nil {
			c.lose(e)
		}
		l.giveBack(e, c == nil, now)
	}
}

// lockedWith is where e stands while it is locked, with its place there and the end of its lock.
func (l *locks) lockedWith(e *entry, now instant) (h *entryHeap, key int64, until instant) {
	if lock := l.sessions.lockOf(e); lock != nil {
		return &lock.locked, arrival(e.seq), lock.until
	}
	until = now.add(l.cfg.LockDuration)
	return &l.heap, int64(until), until
}

// setHeld notes that e stands in none of the heaps, or does again.
func (l *locks) setHeld(e *entry, held bool) {
	e.held = held
	if l.sessions == nil || e.state != Active {
		return
	}
	if s := l.sessions.byID[e.sessionID]; held {
		s.held++
	} else {
		s.held--
	}
}

// receiveDeferred is ReceiveDeferred, with the mutex held, of messages that are fit.
func (l *locks) receiveDeferred(mode Mode, seqs []int64, now instant, has contents, fit func(*entry) bool) ([]Delivery, error) {
	es, missing := l.entries.find(seqs, func(e *entry) bool { return e.state == Deferred && !e.locked && fit(e) })
	if l.sessions != nil && slices.ContainsFunc(es, func(e *entry) bool { return l.sessions.lockOf(e) == nil }) {
		return nil, ErrSessionLockLost
	}
	for _, e := range es {
		if l.expiry.expired(e, now) {
			l.expiry.expire(e)
			missing = append(missing, e.seq)
		}
	}
	if missing != nil {
		return nil, &NumberError{ErrMessageNotFound, missing}
	}
	ds := make([]Delivery, len(es))
	for i, e := range es {
		if mode != ReceiveAndDelete {
			l.lock(e, mode, now)
			l.changes.noteTaken(e, mode)
		}
		if ds[i] = l.entries.delivery(e, mode, has); mode == ReceiveAndDelete {
			l.entries.drop(e)
		}
	}
	return ds, nil
}

// renew is Queue.RenewLocks.
func (l *locks) renew(ts []LockToken, now instant) ([]time.Time, error) {
	for _, t := range ts {
		if l.tokens[t] == nil {
			return nil, ErrLockLost
		}
	}
	if l.sessions != nil {
		return nil, ErrLockedBySession
	}
	until := now.add(l.cfg.LockDuration)
	times := make([]time.Time, len(ts))
	for i, t := range ts {
		e := l.tokens[t]
		e.lockedUntil = until
		if !e.held {
			l.heap.move(e, int64(until))
		}
		times[i] = until.time()
	}
	return times, nil
}

func (l *locks) maxDeliveryDescription() string {
	return fmt.Sprintf("Message could not be consumed after %d delivery attempts.", l.cfg.MaxDeliveryCount)
}
