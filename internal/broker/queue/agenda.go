// SPDX-License-Identifier: Apache-2.0

package queue

import "time"

// maxNap bounds how long the timer sleeps. The broker's clock may be stepped while it does, and the
// machine may be suspended, which stops the timer but not the clock.
const maxNap = time.Minute

// agenda knows what becomes due and when. It has the queue's timer.
type agenda struct {
	cfg         *settings
	locks       *locks
	sessions    *Sessions
	schedule    *schedule
	expiry      *expiry
	deadLetters *deadLetters
	history     *history
	wake        func() // what the timer does
	timer       *time.Timer
	armedFor    instant // when timer runs, by the broker's clock; never: it does not
}

// catchUp does what has become due since the last operation, or the timer, looked at the clock.
func (a *agenda) catchUp(now instant) {
	a.locks.lapse(now)
	a.sessions.lapse(now)
	a.schedule.activate(now)
	a.expiry.finishCleanup(now)
	a.deadLetters.admitLate(now)
	a.history.prune(now)
	if a.cfg.Expiry == Eager {
		a.expiry.flushWave(now)
	}
}

// next is when something becomes due by itself.
func (a *agenda) next() instant {
	return min(a.locks.heap.next(), a.sessions.next(), a.schedule.heap.next(),
		a.expiry.next(), a.deadLetters.next(), a.history.next())
}

// behind reports whether something is due that was left to the timer, see wave.
func (a *agenda) behind(now instant) bool { return a.next() <= now }

// arm makes sure that the timer runs no later than something becomes due. A timer that runs too
// early, because what it was armed for is gone, finds nothing to do: cheaper than to set it again
// with every message.
func (a *agenda) arm(now instant) {
	next := a.next()
	if next == never || now < a.armedFor && a.armedFor <= next {
		return
	}
	nap := next.until(now, maxNap)
	a.armedFor = now.add(nap)
	if a.timer == nil {
		a.timer = time.AfterFunc(nap, a.wake)
		return
	}
	a.timer.Reset(nap)
}

// stop is for the end of the queue.
func (a *agenda) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

// timerRan is what the timer does.
func (q *Queue) timerRan() {
	q.mu.Lock()
	q.agenda.armedFor = never
	q.mu.Unlock()
	if now, err := q.enter(); err == nil {
		q.leave(now)
	}
}
