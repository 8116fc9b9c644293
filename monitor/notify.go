// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"encoding/json"
	"time"

	"overdue/alert"
	"overdue/internal/pace"
	"overdue/internal/servicebus/link"
	"overdue/monitor/intake"
	"overdue/monitor/judge"
	"overdue/monitor/notify"
	"overdue/monitor/search"
	"overdue/scheduler"

	"go.uber.org/zap"
)

// notify sends the event of wt to every sink ⑥, then completes its companions.
func (e *entity) notify(ctx context.Context, wt *watch) {
	if e.settings.forwardDead != "" && wt.ref != nil && !wt.ref.WithoutID() {
		e.w.notified.Note(forwardedID(e.name, wt.ref.MessageID))
	}
	e.w.notify(ctx, e.name, wt.reference(), wt.missed, wt.companions)
}

// notify sends the event of a message, and then completes its companions. It does not block.
func (w *Worker) notify(ctx context.Context, entity string, ref *scheduler.Reference, missed *scheduler.Missed, companions []*intake.Companion) {
	w.running.Add(1)
	w.notifier.Notify(ctx, entity, ref, missed, func(r notify.Result) {
		defer w.running.Done()
		first := companions[0]
		for _, c := range companions[1:] {
			c.Done(ctx, nil)
		}
		if r.Err == nil {
			first.Done(ctx, nil)
			return
		}
		untaken := *missed
		untaken.TakenBy = r.Taken
		w.notifyLater(ctx, entity, ref, &untaken, first, r)
	})
}

// notifyLater rewrites the companion with all that is known of the event, so that the
// notification needs neither this process nor the dead letter. After pace.MaxAttempts the companion
// goes to the dead-letter queue of the monitor queue.
func (w *Worker) notifyLater(ctx context.Context, entity string, ref *scheduler.Reference, missed *scheduler.Missed, c *intake.Companion, r notify.Result) {
	attempt, wait := c.Content.Attempt, r.Wait
	if r.Failed {
		attempt++
		wait = max(wait, pace.Delay(attempt))
		log := w.log.With(zap.String("work_queue", entity), zap.String("message_id", ref.MessageID), zap.Int("attempt", attempt), zap.Error(r.Err))
		if attempt > pace.MaxAttempts {
			log.Error("alert undeliverable: its companion is kept as a dead letter", zap.String("monitor_queue", c.Queue()), zap.String("next", "check the sink: overdue doctor --send-test"))
			c.Refuse(ctx, intake.Undeliverable, r.Err.Error())
			return
		}
		log.Warn("alert not delivered", zap.Duration("retry_in", wait))
	}
	untaken := *ref
	untaken.Missed = missed
	c.Done(ctx, &scheduler.Companion{
		Entity:     entity,
		Due:        w.clock.Now().Add(wait),
		References: []scheduler.Reference{untaken},
		Attempt:    attempt,
	})
}

// A message may have reminders besides its deadline: some time before it, and when the message
// should have been completed. A reminder changes nothing about the message. One companion
// serves all of them: it is due for the first, and is rewritten for the next.
//
// A peek does not show who holds a message. So a reminder says that the message is not settled,
// and whether it is deferred, but not whether anybody has received it.

// judge judges the message of wt, at the instant now of the clock of the broker. The copy of a
// message in a subscription without a time to live may have to be completed although it can be
// received at any time.
func (wt *watch) judge(s *entitySettings, now time.Time) judge.Judgement {
	r := wt.reference()
	if r.Stated == "default" && s.isEndless(wt.seen) {
		completed := *r
		completed.Stated = scheduler.StatedComplete
		r = &completed
	}
	return judge.Message(r, wt.seen, s.Settings, now)
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
func (wt *watch) untilComplete(clock *judge.Clock, wait time.Duration) time.Duration {
	by := wt.judgement.CompleteBy
	if by.IsZero() || wt.reference().Incomplete {
		return wait
	}
	return min(wait, max(by.Add(clock.Grain()).Sub(clock.Now()), time.Millisecond))
}

// notifyReminder notifies of a reminder. It counts as a part of its companion, which stays
// until the notification succeeds, and the check goes on meanwhile.
func (e *entity) notifyReminder(ctx context.Context, wt *watch, eventType string, deadline time.Time, before time.Duration) {
	missed := judge.Missed(wt.seen, deadline)
	missed.Type = eventType
	missed.DeadLetteredTime = e.w.clock.Latest()
	missed.State = "active"
	if wt.seen.State == link.Deferred {
		missed.State = "deferred"
	}
	missed.WarnBeforeMs = before.Milliseconds()
	c, ref := wt.companions[0], *wt.reference()
	c.Add(1)
	e.w.notify(ctx, e.name, &ref, missed, []*intake.Companion{c})
}

// NotifyBlind writes an event of [alert.TypeBlind] to the monitor queue, where it waits like that of
// a missed deadline until each sink has it.
func (w *Worker) NotifyBlind(ctx context.Context, e alert.Event) error {
	data, err := json.Marshal(e.Blind)
	if err != nil {
		return err
	}
	return w.cfg.Scheduler.Schedule(ctx, scheduler.Companion{
		Entity: w.cfg.Queues.Name(0),
		Due:    w.clock.Now(),
		References: []scheduler.Reference{{
			MessageID: e.Subject,
			Deadline:  e.Blind.To,
			Missed:    &scheduler.Missed{Type: e.Type, Notice: data},
		}},
	})
}
