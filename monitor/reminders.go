// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"time"

	"overdue/alert"
	"overdue/internal/servicebus/link"
	"overdue/monitor/judge"
	"overdue/monitor/search"
	"overdue/scheduler"
)

// A message may have reminders besides its deadline: some time before it, and when the message
// should have been completed. A reminder changes nothing about the message. One companion
// serves all of them: it is due for the first, and is rewritten for the next.
//
// A peek does not show who holds a message. So a reminder says that the message is not settled,
// and whether it is deferred, but not whether anybody has received it.

// hasReminders reports whether there may be a reminder for m.
func (e *entity) hasReminders(r *scheduler.Reference, m *link.Message) bool {
	return len(e.settings.WarnBefore) > 0 || !judge.CompleteBy(r, m, e.settings.Settings).IsZero()
}

// beforeDeadline reports whether the companion of wt is due for a reminder, before the
// deadline.
func (e *entity) beforeDeadline(wt *watch) bool {
	return wt.ref.Stated == scheduler.StatedComplete || wt.due().After(e.w.clock.Now().Add(earlyBy))
}

// earlyBy is how long before its deadline a companion without a reminder is due, at most.
const earlyBy = 500 * time.Millisecond

// judge judges the message of wt.
func (e *entity) judge(wt *watch, now time.Time) judge.Judgement {
	return e.judgeFound(&wt.ref, &wt.want, wt.want.Found, now)
}

// judgeFound judges m, which r and w stand for. The copy of a message in a
// subscription without a time to live may have to be completed although it can be received at any
// time.
func (e *entity) judgeFound(r *scheduler.Reference, w *search.Want, m *link.Message, now time.Time) judge.Judgement {
	if w.Ref == nil || !w.HasNoDeadline(m) {
		return judge.Message(r, m, e.settings.Settings, now)
	}
	completed := *r
	completed.Stated = scheduler.StatedComplete
	return judge.Message(&completed, m, e.settings.Settings, now)
}

// remind notifies of the due reminders of wt. Its message was on the queue at the instant at.
func (e *entity) remind(ctx context.Context, wt *watch, at time.Time) {
	m, j := wt.want.Found, &wt.judgement
	if wt.slot != nil || wt.state == stateMissed || wt.state == stateGone || m == nil || search.Pending(m) {
		return
	}
	at = at.Add(-e.w.clock.Grain())
	if !wt.ref.Incomplete && !j.CompleteBy.IsZero() && !j.CompleteBy.After(at) {
		wt.ref.Incomplete = true
		e.notifyReminder(ctx, wt, alert.TypeIncomplete, j.CompleteBy, 0)
	}
	if before := e.reachedWarning(wt, at); wt.state == stateWaiting && j.Deadline.After(at) && before > 0 {
		wt.ref.Warned = before
		e.notifyReminder(ctx, wt, alert.TypeNear, j.Deadline, before)
	}
}

// reachedWarning returns the reminder of wt that is due at the instant at: the nearest to the
// deadline. 0: none.
func (e *entity) reachedWarning(wt *watch, at time.Time) (nearest time.Duration) {
	e.warnings(wt, func(before time.Duration, when time.Time) {
		if !when.After(at) && (nearest == 0 || before < nearest) {
			nearest = before
		}
	})
	return nearest
}

// warnings calls each for the reminders without a notification. A reminder that would have been due
// before the message was enqueued is skipped.
func (e *entity) warnings(wt *watch, each func(before time.Duration, when time.Time)) {
	m, deadline := wt.want.Found, wt.judgement.Deadline
	if m == nil || deadline.IsZero() {
		return
	}
	for _, before := range e.settings.WarnBefore {
		when := deadline.Add(-before)
		if warned := wt.ref.Warned > 0 && wt.ref.Warned <= before; !warned && when.After(m.EnqueuedTime) {
			each(before, when)
		}
	}
}

// nextReminder returns when wt has to be checked next; zero: never.
func (e *entity) nextReminder(wt *watch) (next time.Time) {
	j := &wt.judgement
	consider := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	consider(j.Deadline)
	if !wt.ref.Incomplete {
		consider(j.CompleteBy)
	}
	if m := wt.want.Found; m != nil && !search.Pending(m) {
		e.warnings(wt, func(_ time.Duration, when time.Time) { consider(when) })
	}
	return next
}

// awaitsReminder reports whether a reminder of wt, whose message was found, comes before its
// deadline.
func (e *entity) awaitsReminder(wt *watch) bool {
	next := e.nextReminder(wt)
	return !next.IsZero() && next.Before(wt.due())
}

// untilComplete shortens wait to the instant at which the message of wt must be completed.
func (e *entity) untilComplete(wt *watch, wait time.Duration) time.Duration {
	by := wt.judgement.CompleteBy
	if by.IsZero() || wt.ref.Incomplete {
		return wait
	}
	return min(wait, max(by.Add(e.w.clock.Grain()).Sub(e.w.clock.Now()), time.Millisecond))
}

// notifyReminder notifies of a reminder. It has a watch of its own, so that the companion stays
// until the notification succeeds, and the check goes on meanwhile.
func (e *entity) notifyReminder(ctx context.Context, wt *watch, eventType string, deadline time.Time, before time.Duration) {
	missed := judge.Missed(wt.want.Found, deadline)
	missed.Type, missed.DeadLetteredTime, missed.State, missed.WarnBeforeMs = eventType, e.w.clock.Latest(), stateOf(wt.want.Found), before.Milliseconds()
	wt.companion.Add(1)
	e.w.notify(ctx, e.name, &watch{ref: wt.ref, companion: wt.companion, missed: missed})
}

// States in events.
const (
	stateActive   = "active"
	stateDeferred = "deferred"
)

func stateOf(m *link.Message) string {
	if m.State == link.Deferred {
		return stateDeferred
	}
	return stateActive
}

// countGone counts the verdict of a message that is gone. If it only had to be completed in
// time and was not, it has been counted.
func (e *entity) countGone(wt *watch) {
	if wt.duplicates == isDuplicate {
		return // its own reference counts
	}
	if wt.ref.Stated == scheduler.StatedComplete && wt.ref.Incomplete {
		return
	}
	if e.w.cfg.Scheduler.Refused(e.name, &wt.ref) {
		return // it never was on its queue
	}
	e.w.metrics.Verdict(e.name, e.verdictWhenGone(wt))
}
