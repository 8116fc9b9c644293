// SPDX-License-Identifier: Apache-2.0

package queue

// expired: the time to live of e has passed, in a queue where that matters.
func (q *Queue) expired(e *entry, now instant) bool {
	return e.expiresAt <= now && !q.cfg.frozen
}

// expire is the end of an expired message, which must be unlocked and not waiting.
func (q *Queue) expire(e *entry) {
	if q.cfg.DeadLetteringOnMessageExpiration {
		q.deadLetter(e, reasonExpired, descriptionExpired)
		return
	}
	q.entries.drop(e)
}

// wave is how many messages change their place while the mutex is held once, for a few
// milliseconds. A hundred thousand that are due together would keep everybody else waiting. The
// timer goes on at once.
const wave = 4096

// flushWave expires waiting messages that are due, by time of expiry, one wave of them. It reports
// false when it has left some to the timer. Until all are moved nothing is delivered and no drain
// ends, so receivers see one move. Everybody else may see how far it has come.
func (q *Queue) flushWave(now instant) bool {
	for range wave {
		e := q.waiting.expiry.min()
		if e == nil || e.expiresAt > now {
			return true
		}
		q.cleanUp(e, now)
	}
	q.moving = true
	return false
}
