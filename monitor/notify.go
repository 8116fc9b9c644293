// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"time"

	"overdue/monitor/intake"
	"overdue/monitor/notify"
	"overdue/scheduler"

	"go.uber.org/zap"
)

// maxAttempts bounds how often a companion is rewritten because a notification failed. With
// attemptDelay that takes about a day.
const maxAttempts = 300

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
// notification needs neither this process nor the dead letter. After maxAttempts the companion
// goes to the dead-letter queue of the monitor queue.
func (w *Worker) notifyLater(ctx context.Context, entity string, ref *scheduler.Reference, missed *scheduler.Missed, c *intake.Companion, r notify.Result) {
	attempt, wait := c.Content.Attempt, r.Wait
	if r.Failed {
		attempt++
		wait = max(wait, attemptDelay(attempt))
		log := w.log.With(zap.String("work_queue", entity), zap.String("message_id", ref.MessageID), zap.Int("attempt", attempt), zap.Error(r.Err))
		if attempt > maxAttempts {
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

// attemptDelay returns the delay before attempt n of a notification, n ≥ 1.
func attemptDelay(n int) time.Duration {
	if n > 9 {
		return 5 * time.Minute
	}
	return time.Second << (n - 1)
}
