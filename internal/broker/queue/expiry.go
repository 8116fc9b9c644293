// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"time"

	"overdue/internal/broker/quirk"
)

// expiry takes expired messages off the queue.
type expiry struct {
	cfg         *settings
	entries     *entries
	waiting     *waiting
	deadLetters *deadLetters
	cleanup     entryHeap // expired and not moved yet, by when they are, see quirk.CleanupLate
	moving      bool      // a receive has left expired messages to the timer, see flushWave
}

// cleanupStep is a tenth of how long a clean-up can take, with quirk.CleanupLate.
const cleanupStep = 200 * time.Millisecond

// expired: the time to live of e has passed, in a queue where that matters.
func (x *expiry) expired(e *entry, now instant) bool {
	return e.expiresAt <= now && !x.cfg.frozen
}

// expire is the end of an expired message, which must be unlocked and not waiting.
func (x *expiry) expire(e *entry) {
	if x.cfg.DeadLetteringOnMessageExpiration {
		x.deadLetters.add(e, ReasonExpired, descriptionExpired)
		return
	}
	x.entries.drop(e)
}

// wave is how many messages change their place while the mutex is held once, for a few
// milliseconds. A hundred thousand that are due together would keep everybody else waiting. The
// timer goes on at once.
const wave = 4096

// flushWave expires waiting messages that are due, by time of expiry, one wave of them. It reports
// false when it has left some to the timer. Until all are moved nothing is delivered and no drain
// ends, so receivers see one move. Everybody else may see how far it has come.
func (x *expiry) flushWave(now instant) bool {
	for range wave {
		e := x.waiting.expiry.min()
		if e == nil || e.expiresAt > now {
			return true
		}
		x.cleanUp(e, now)
	}
	x.moving = true
	return false
}

// cleanUp takes e, which waits and has expired, off the queue. With quirk.CleanupLate, what a
// receive finds so waits no more, and stands there for up to ten steps, which its sequence number
// decides.
func (x *expiry) cleanUp(e *entry, now instant) {
	x.waiting.remove(e)
	if steps := arrival(e.seq) * 7 % 11; steps > 0 && x.cfg.Quirks.Has(quirk.CleanupLate) && x.cfg.Expiry != Eager {
		x.cleanup.push(e, int64(now.add(time.Duration(steps)*cleanupStep)))
		return
	}
	x.expire(e)
}

// finishCleanup takes expired messages off the queue whose time has come.
func (x *expiry) finishCleanup(now instant) {
	for x.cleanup.next() <= now {
		e, _ := x.cleanup.min()
		x.cleanup.remove(e)
		x.expire(e)
	}
}

// next is when something is due, or has been left to the timer.
func (x *expiry) next() instant {
	if x.moving {
		return unset
	}
	next := x.cleanup.next()
	if e := x.waiting.expiry.min(); e != nil && x.cfg.Expiry == Eager {
		next = min(next, e.expiresAt)
	}
	return next
}
