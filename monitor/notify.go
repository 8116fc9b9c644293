// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"time"

	"overdue/monitor/intake"
	"overdue/monitor/notify"

	"go.uber.org/zap"
)

// maxAttempts bounds how often a companion is rewritten because a notification failed. With
// attemptDelay that takes about a day.
const maxAttempts = 300

// notify sends the event of wt to every sink, then ends wt. It does not block.
func (w *Worker) notify(ctx context.Context, entity string, wt *watch) {
	w.running.Add(1)
	w.notifier.Notify(ctx, entity, &wt.ref, wt.missed, func(r notify.Result) {
		defer w.running.Done()
		w.endNotification(ctx, entity, wt, r)
	})
}

// endNotification ends wt, or rewrites its companion for the sinks that have not taken the event.
func (w *Worker) endNotification(ctx context.Context, entity string, wt *watch, r notify.Result) {
	if r.Err == nil {
		wt.companion.Done(ctx, nil)
		return
	}
	untaken := *wt.missed
	untaken.TakenBy = r.Taken
	wt.missed = &untaken
	w.notifyLater(ctx, entity, wt, r)
}

// notifyLater rewrites the companion with all that is known of the event, so that the
// notification needs neither this process nor the dead letter. After maxAttempts the companion
// goes to the dead-letter queue of the monitor queue.
func (w *Worker) notifyLater(ctx context.Context, entity string, wt *watch, r notify.Result) {
	attempt, wait := wt.companion.Content.Attempt, r.Wait
	if r.Failed {
		attempt++
		wait = max(wait, attemptDelay(attempt))
		log := w.log.With(zap.String("work_queue", entity), zap.String("message_id", wt.ref.MessageID), zap.Int("attempt", attempt), zap.Error(r.Err))
		if attempt > maxAttempts {
			log.Error("alert undeliverable: its companion is kept as a dead letter", zap.String("monitor_queue", wt.companion.Queue()), zap.String("next", "check the sink: overdue doctor --send-test"))
			wt.companion.Refuse(ctx, intake.Undeliverable, r.Err.Error())
			return
		}
		log.Warn("alert not delivered", zap.Duration("retry_in", wait))
	}
	wt.companion.Done(ctx, wt.again(entity, w.clock.Now().Add(wait), attempt))
}

// attemptDelay returns the delay before attempt n of a notification, n ≥ 1.
func attemptDelay(n int) time.Duration {
	if n > 9 {
		return 5 * time.Minute
	}
	return time.Second << (n - 1)
}
