// SPDX-License-Identifier: Apache-2.0

package queue

import "time"

// maxNap bounds how long the timer sleeps. The broker's clock may be stepped while it does, and the
// machine may be suspended, which stops the timer but not the clock.
const maxNap = time.Minute

// catchUp does what has become due since the last operation, or the timer, looked at the clock.
func (q *Queue) catchUp(now instant) {
	q.locks.lapse(now)
	q.sessions.lapse(now)
	q.schedule.activate(now)
	q.expiry.finishCleanup(now)
	q.deadLetters.admitLate(now)
	q.history.prune(now)
	if q.cfg.Expiry == Eager {
		q.expiry.flushWave(now)
	}
}

// next is when something becomes due by itself.
func (q *Queue) next() instant {
	return min(q.locks.heap.next(), q.sessions.next(), q.schedule.heap.next(),
		q.expiry.next(), q.deadLetters.next(), q.history.next())
}

// behind reports whether something is due that was left to the timer, see wave.
func (q *Queue) behind(now instant) bool { return q.next() <= now }

// arm makes sure that the timer runs no later than something becomes due. A timer that runs too
// early, because what it was armed for is gone, finds nothing to do: cheaper than to set it again
// with every message.
func (q *Queue) arm(now instant) {
	next := q.next()
	if next == never || now < q.armedFor && q.armedFor <= next {
		return
	}
	nap := next.until(now, maxNap)
	q.armedFor = now.add(nap)
	if q.timer == nil {
		q.timer = time.AfterFunc(nap, q.timerRan)
		return
	}
	q.timer.Reset(nap)
}

// timerRan is the function of the timer.
func (q *Queue) timerRan() {
	q.mu.Lock()
	q.armedFor = never
	q.mu.Unlock()
	if now, err := q.enter(); err == nil {
		q.leave(now)
	}
}
