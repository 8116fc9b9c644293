// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"errors"
	"time"

	"overdue/monitor/notify"
	"overdue/scheduler"

	"go.uber.org/zap"
)

// notifyTime bounds the attempts to notify one sink of one event. Then its companion is rewritten.
const notifyTime = 10 * time.Second

// notify sends the event of wt to every sink, then ends wt. It does not block: a slow sink must
// not delay the next check.
func (w *Worker) notify(ctx context.Context, entity string, wt *watch) {
	k := notify.KeyOf(w.eventOf(entity, wt).ID)
	// Another watch may be notifying of the same event. This watch ends only if that one succeeds:
	// both may belong to one companion that came back, and otherwise the event would be lost.
	first := w.notified.Begin(k, func(r notify.Result) { w.endNotification(ctx, entity, wt, r) })
	if !first {
		return
	}
	w.running.Add(1)
	n := &notification{w: w, ctx: ctx, entity: entity, watch: wt, before: wt.missed.TakenBy, end: func(r notify.Result) {
		w.notified.End(k, r)
		w.running.Done()
	}}
	if w.cfg.Notified != nil {
		n.claim()
		return
	}
	n.send()
}

// endNotification ends wt, or rewrites its companion for the sinks that have not taken the event.
func (w *Worker) endNotification(ctx context.Context, entity string, wt *watch, r notify.Result) {
	if r.Err == nil {
		wt.companion.done(ctx, nil)
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
	attempt, wait := wt.companion.content.Attempt, time.Duration(0)
	if off := (*notify.PutOff)(nil); errors.As(r.Err, &off) {
		wait = off.For
	}
	if r.Failed {
		attempt++
		wait = attemptDelay(attempt)
		log := w.log.With(zap.String("work_queue", entity), zap.String("message_id", wt.ref.MessageID), zap.Int("attempt", attempt), zap.Error(r.Err))
		if attempt > maxAttempts {
			log.Error("alert undeliverable: its companion is kept as a dead letter", zap.String("monitor_queue", w.cfg.MonitorQueue), zap.String("next", "check the sink: overdue doctor --send-test"))
			wt.companion.refuse(ctx, reasonUndeliverable, r.Err.Error())
			return
		}
		log.Warn("alert not delivered", zap.Duration("retry_in", wait))
	}
	ref := wt.ref
	ref.Missed = wt.missed
	wt.companion.done(ctx, &scheduler.Companion{
		Entity: entity, Due: w.clock.now().Add(wait),
		References: []scheduler.Reference{ref}, Attempt: attempt,
	})
}
