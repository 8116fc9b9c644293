// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"time"

	"overdue/alert"
	"overdue/internal/servicebus/link"
	"overdue/monitor/intake"
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

// judge judges the message of wt, at the instant now of the clock of the broker. The copy of a
// message in a subscription without a time to live may have to be completed although it can be
// received at any time.
func (e *entity) judge(wt *watch, now time.Time) judge.Judgement {
	r := wt.reference()
	if r.Stated == "default" && e.settings.isEndless(wt.seen) {
		completed := *r
		completed.Stated = scheduler.StatedComplete
		r = &completed
	}
	return judge.Message(r, wt.seen, e.settings.Settings, now)
}

// remind notifies of the due reminders of wt. Its message was on the queue at the instant at.
func (e *entity) remind(ctx context.Context, wt *watch, at time.Time) {
	if !wt.there || wt.isDecided() {
		return
	}
	j, r := &wt.judgement, wt.reference()
	at = at.Add(-e.w.clock.Grain())
	if !r.Incomplete && !j.CompleteBy.IsZero() && !j.CompleteBy.After(at) {
		r.Incomplete = true
		e.notifyReminder(ctx, wt, alert.TypeIncomplete, j.CompleteBy, 0)
	}
	if before := wt.reachedWarning(&e.settings, at); wt.state == stateWaiting && j.Deadline.After(at) && before > 0 {
		r.Warned = before
		e.notifyReminder(ctx, wt, alert.TypeNear, j.Deadline, before)
	}
}

// reachedWarning returns the reminder of wt that is due at the instant at: the nearest to the
// deadline. 0: none.
func (wt *watch) reachedWarning(s *entitySettings, at time.Time) (nearest time.Duration) {
	wt.eachWarning(s, func(before time.Duration, when time.Time) {
		if !when.After(at) && (nearest == 0 || before < nearest) {
			nearest = before
		}
	})
	return nearest
}

// eachWarning calls do for the reminders without a notification. A reminder that would have been
// due before the message was enqueued is skipped.
func (wt *watch) eachWarning(s *entitySettings, do func(before time.Duration, when time.Time)) {
	if wt.seen == nil || search.Pending(wt.seen) || wt.judgement.Deadline.IsZero() {
		return
	}
	for _, before := range s.WarnBefore {
		when := wt.judgement.Deadline.Add(-before)
		if warned := wt.ref.Warned > 0 && wt.ref.Warned <= before; !warned && when.After(wt.seen.EnqueuedTime) {
			do(before, when)
		}
	}
}

// nextReminder returns when wt has to be checked next, by the clock of the broker: at its deadline,
// or at a reminder before. Zero: never.
func (wt *watch) nextReminder(s *entitySettings) (next time.Time) {
	if wt.seen == nil {
		return wt.deadline
	}
	consider := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	consider(wt.judgement.Deadline)
	if !wt.reference().Incomplete {
		consider(wt.judgement.CompleteBy)
	}
	wt.eachWarning(s, func(_ time.Duration, when time.Time) { consider(when) })
	return next
}

// untilComplete shortens wait to the instant at which the message of wt must be completed.
func (e *entity) untilComplete(wt *watch, wait time.Duration) time.Duration {
	by := wt.judgement.CompleteBy
	if by.IsZero() || wt.reference().Incomplete {
		return wait
	}
	return min(wait, max(by.Add(e.w.clock.Grain()).Sub(e.w.clock.Now()), time.Millisecond))
}

// notifyReminder notifies of a reminder. It counts as a part of its companion, which stays
// until the notification succeeds, and the check goes on meanwhile.
func (e *entity) notifyReminder(ctx context.Context, wt *watch, eventType string, deadline time.Time, before time.Duration) {
	missed := judge.Missed(wt.seen, deadline)
	missed.Type = eventType
	missed.DeadLetteredTime = e.w.clock.Latest()
	missed.State = stateOf(wt.seen)
	missed.WarnBeforeMs = before.Milliseconds()
	c, ref := wt.companions[0], *wt.reference()
	c.Add(1)
	e.w.notify(ctx, e.name, &ref, missed, []*intake.Companion{c})
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
