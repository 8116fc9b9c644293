// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"time"

	"overdue/internal/broker/quirk"
)

// How a queue differs from one of Service Bus, where Config.Quirks says so.

const (
	// lateness is how long a dead letter cannot be found, with quirk.DeadLettersLate.
	lateness = 500 * time.Millisecond
	// lateStep is a tenth of how late a scheduled message can be, with quirk.ScheduleLate.
	lateStep = 100 * time.Millisecond
	// cleanupStep is a tenth of how long a clean-up can take, with quirk.CleanupLate.
	cleanupStep = 200 * time.Millisecond
)

// cleanUp takes e, which waits and has expired, off the queue. With quirk.CleanupLate, what a
// receive finds so waits no more, and stands there for up to ten steps, which its sequence number
// decides.
func (q *Queue) cleanUp(e *entry, now instant) {
	q.waiting.remove(e)
	if steps := arrival(e.seq) * 7 % 11; steps > 0 && q.cfg.Quirks.Has(quirk.CleanupLate) && q.cfg.Expiry != Eager {
		q.cleanup.push(e, int64(now.add(time.Duration(steps)*cleanupStep)))
		return
	}
	q.expire(e)
}

// finishCleanup takes expired messages off the queue whose time has come.
func (q *Queue) finishCleanup(now instant) {
	for q.cleanup.next() <= now {
		e, _ := q.cleanup.min()
		q.cleanup.remove(e)
		q.expire(e)
	}
}

// pushSchedule puts e in the schedule. With quirk.ScheduleLate, a message is late by one to ten
// steps, which its sequence number decides.
func (q *Queue) pushSchedule(e *entry) {
	at := e.scheduledAt
	if q.cfg.Quirks.Has(quirk.ScheduleLate) {
		at = at.add(time.Duration(1+arrival(e.seq)*7%10) * lateStep)
	}
	q.schedule.push(e, int64(at))
}

// release gives e back for the outcome released.
func (q *Queue) release(e *entry, now instant) {
	q.giveBack(e, q.cfg.Quirks.Has(quirk.ReleaseCounts), now)
	if !q.cfg.Quirks.Has(quirk.ReleaseLast) || q.entries.byNumber.get(e.seq) != e || e.state != Active {
		return // it has expired, was delivered too often, or is deferred
	}
	q.waiting.move(e, q.numbers.nextArrival()) // nothing else has this place
}

// arrive takes a message that another queue has dead-lettered.
func (q *Queue) arrive(e *entry, now instant) {
	e.extra.deadLetteredAt = now
	if q.cfg.Quirks.Has(quirk.DeadLettersLate) {
		q.late = append(q.late, e)
		return
	}
	q.admitDead(e, now)
}

// admitLate makes dead letters visible whose time has come.
func (q *Queue) admitLate(now instant) {
	for len(q.late) > 0 && q.late[0].extra.deadLetteredAt.add(lateness) <= now {
		q.admitDead(q.late[0], now)
		q.late = q.late[1:]
	}
}

func (q *Queue) admitDead(e *entry, now instant) {
	e.state = Active
	if q.cfg.Quirks.Has(quirk.DeadLettersRestamped) {
		e.enqueuedAt = now
	}
	if q.cfg.Quirks.Has(quirk.DeadLettersRenumbered) {
		e.seq = q.numbers.nextArrival()
	}
	q.entries.admit(e)
	q.waiting.add(e)
}
