// SPDX-License-Identifier: Apache-2.0

package queue

// expired: the time to live of e has passed, in a queue where that matters.
func (q *Queue) expired(e *entry, now instant) bool {
	return e.expiresAt <= now && !q.frozen()
}

// expire is the end of an expired message, which must be unlocked and not waiting.
func (q *Queue) expire(e *entry) {
	if q.cfg.DeadLetteringOnMessageExpiration {
		q.deadLetter(e, reasonExpired, descriptionExpired)
		return
	}
	q.drop(e)
}

// flush expires every waiting message that is due, by time of expiry.
func (q *Queue) flush(now instant) {
	for {
		e, at := q.expiry.min()
		if e == nil || instant(at) > now {
			return
		}
		q.unwait(e)
		q.expire(e)
	}
}
