// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"time"

	"overdue/alert"
	"overdue/internal/servicebus/link"
	"overdue/scheduler"
)

// Beside its deadline a message may have reminders at which somebody is notified that it is still there: some while before the
// deadline, and when it should have been completed. Nothing is done to it then. One companion sees to all of them: it
// becomes due for the first, and is rewritten for the next.
//
// A peek cannot tell who holds a message. So a warning says that the message is not settled, and whether it is set aside;
// not whether anybody has received it.

// completeBy is when m has to be settled for good, zero where nobody says so. As with its deadline what m states itself
// counts, then what its entity says, then what it was sent with.
func completeBy(r *scheduler.Reference, m *link.Message, s Settings) time.Time {
	within, err := scheduler.StatedCompletion(func(name string) any { return m.Properties[name] })
	switch {
	case err == nil && within > 0:
	case s.CompleteWithin > 0:
		within = s.CompleteWithin
	case r.CompleteWithin > 0:
		within = r.CompleteWithin
	case r.Stated == scheduler.StatedComplete:
		return r.DeadlineAt(m.EnqueuedTime)
	default:
		return time.Time{}
	}
	return m.EnqueuedTime.Add(within)
}

// completes reports whether the message that is searched for has to be completed, whatever else holds for it.
func completes(r *scheduler.Reference, m *link.Message) bool {
	return !completeBy(r, m, Settings{}).IsZero()
}

// hasReminders reports whether there may be something to notify of m before its deadline.
func (e *entity) hasReminders(r *scheduler.Reference, m *link.Message) bool {
	return len(e.settings.WarnBefore) > 0 || !completeBy(r, m, e.settings.Settings).IsZero()
}

// beforeDeadline reports whether there is no deadline yet for which wt could be checked: its companion has become due for something to
// tell before that, or there is none.
func (wt *watch) beforeDeadline() bool {
	return wt.ref.Stated == scheduler.StatedComplete || wt.due().After(wt.companion.w.clock.now().Add(checkAgainMin))
}

// firstReminder is how long after its activation a scheduled message is to be checked.
func firstReminder(r *scheduler.Reference, s Settings) time.Duration {
	switch {
	case len(s.WarnBefore) > 0:
		return 0 // its stamp shows when
	case r.CompleteWithin > 0:
		return min(r.Within, r.CompleteWithin)
	}
	return r.Within
}

// judge decides about the message that was found for wt. The copy of a topic's message in a subscription without a time
// to live may have to be completed although it can be received at any time.
func (e *entity) judge(wt *watch, now time.Time) judgement {
	return e.judgeFound(&wt.ref, &wt.want, wt.want.found, now)
}

// judgeFound decides about m, which r and w stand for.
func (e *entity) judgeFound(r *scheduler.Reference, w *want, m *link.Message, now time.Time) judgement {
	if w.ref == nil || !w.hasNoDeadline(m) {
		return judge(r, m, e.settings.Settings, now)
	}
	completed := *r
	completed.Stated = scheduler.StatedComplete
	return judge(&completed, m, e.settings.Settings, now)
}

// remind shows what there is to notify of the message of wt, which was still there at the instant at of the broker's
// clock, or later.
func (e *entity) remind(ctx context.Context, wt *watch, at time.Time) {
	m, j := wt.want.found, &wt.judgement
	if wt.slot != nil || wt.missed != nil || j.verdict == gone || m == nil || pending(m) || !wt.disappearedAt.IsZero() {
		return
	}
	at = at.Add(-stampPrecision)
	if !wt.ref.Incomplete && !j.completeBy.IsZero() && !j.completeBy.After(at) {
		wt.ref.Incomplete = true
		e.notifyReminder(ctx, wt, alert.TypeIncomplete, j.completeBy, 0)
	}
	if before := e.reachedWarning(wt, at); j.verdict == notDue && j.deadline.After(at) && before > 0 {
		wt.ref.Warned = before
		e.notifyReminder(ctx, wt, alert.TypeNear, j.deadline, before)
	}
}

// latest is the broker's clock, or a little before. Unlike that of the worker it is right after a time in which nothing
// became due, where the clock has been measured, but as good as the measurement: enough for what expires nothing.
func (w *Worker) latest() time.Time {
	now := w.clock.now()
	if measured := w.cfg.Scheduler.Now(); measured.Measured && measured.Time.Add(-measured.Uncertainty).After(now) {
		return measured.Time.Add(-measured.Uncertainty)
	}
	return now
}

// staleClock is how far the worker's clock may be behind the measured one before that is worth an operation.
const staleClock = time.Second

// behind reports whether the instant t has passed although the worker's clock does not say so, by far: after a time in
// which nobody was there, a companion that became due ahead of its deadline brings an old stamp. One that is rewritten for t
// becomes due at once, and brings the clock with it.
func (w *Worker) behind(t time.Time) bool {
	latest := w.latest()
	return latest.After(t.Add(staleClock)) && latest.After(w.clock.now().Add(staleClock))
}

// reachedWarning is the warning that is to be notified of the message of wt at the instant at: of those that are not notified yet the
// one that is nearest to its deadline. 0 = none.
func (e *entity) reachedWarning(wt *watch, at time.Time) (nearest time.Duration) {
	e.warnings(wt, func(before time.Duration, when time.Time) {
		if !when.After(at) && (nearest == 0 || before < nearest) {
			nearest = before
		}
	})
	return nearest
}

// warnings calls each with the warnings that are not notified yet and when they are due. One that would be due before the
// message was there is none.
func (e *entity) warnings(wt *watch, each func(before time.Duration, when time.Time)) {
	m, deadline := wt.want.found, wt.judgement.deadline
	if m == nil || deadline.IsZero() {
		return
	}
	for _, before := range e.settings.WarnBefore {
		when := deadline.Add(-before)
		if told := wt.ref.Warned > 0 && wt.ref.Warned <= before; !told && when.After(m.EnqueuedTime) {
			each(before, when)
		}
	}
}

// nextReminder is when there is next something to do about the message of wt, which is not due: zero when there never is.
func (e *entity) nextReminder(wt *watch) (next time.Time) {
	j := &wt.judgement
	consider := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	consider(j.deadline)
	if !wt.ref.Incomplete {
		consider(j.completeBy)
	}
	if m := wt.want.found; m != nil && !pending(m) {
		e.warnings(wt, func(_ time.Duration, when time.Time) { consider(when) })
	}
	return next
}

// untilComplete is wait, or less where the message of wt has to be completed sooner.
func (e *entity) untilComplete(wt *watch, wait time.Duration) time.Duration {
	by := wt.judgement.completeBy
	if by.IsZero() || wt.ref.Incomplete {
		return wait
	}
	return min(wait, max(by.Add(stampPrecision).Sub(e.w.clock.now()), time.Millisecond))
}

// notifyReminder has an event notified beside what else becomes of wt. A watch of its own sees to it, so that it is notified for certain
// and holds up nothing.
func (e *entity) notifyReminder(ctx context.Context, wt *watch, eventType string, deadline time.Time, before time.Duration) {
	m := wt.want.found
	telling := &watch{ref: wt.ref, companion: wt.companion, since: wt.since, missed: &scheduler.Missed{
		Type: eventType, SequenceNumber: m.SequenceNumber, EnqueuedTime: m.EnqueuedTime, Deadline: deadline,
		DeadLetteredTime: e.w.latest(), CorrelationID: bounded(m.CorrelationID), DeliveryCount: m.DeliveryCount,
		State: stateOf(m), WarnBeforeMs: before.Milliseconds(),
	}}
	wt.companion.add(1)
	e.w.notify(ctx, e.name, telling)
}

// States as events name them.
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

// reminderEvent is what there is to notify of about the message of wt beside that it missed its deadline.
func (w *Worker) reminderEvent(entity string, wt *watch) alert.Event {
	m := wt.missed
	name, subscription := splitPath(entity)
	before := time.Duration(m.WarnBeforeMs) * time.Millisecond
	kind := alert.KindReceived
	if m.Type == alert.TypeIncomplete {
		kind = alert.KindCompleted
	}
	return alert.Event{
		ID: alert.IDOfReminder(m.Type, entity, m.SequenceNumber, m.EnqueuedTime, before), Type: m.Type,
		Source: w.source(entity), Subject: wt.ref.MessageID, Time: m.DeadLetteredTime.UTC(),
		Data: alert.EventData{
			Entity: name, Subscription: subscription, MessageID: wt.ref.MessageID, SessionID: wt.ref.SessionID,
			SequenceNumber: m.SequenceNumber, EnqueuedTime: m.EnqueuedTime.UTC(), Deadline: m.Deadline.UTC(), DeadlineKind: kind,
			LagMs:         m.DeadLetteredTime.Sub(m.Deadline.Add(-before)).Milliseconds(),
			CorrelationID: m.CorrelationID, DeliveryCount: m.DeliveryCount, State: m.State, WarnBeforeMs: m.WarnBeforeMs,
		},
	}
}

// countGone counts what became of the deadline of a message that is gone. One that only had to be completed is counted when
// it was not.
func (e *entity) countGone(wt *watch) {
	if wt.duplicate {
		return // the reference that it has of its own counts
	}
	if wt.ref.Stated == scheduler.StatedComplete && wt.ref.Incomplete {
		return
	}
	e.w.metrics.verdict(e.name, e.verdictWhenGone(wt))
}
