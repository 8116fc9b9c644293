// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"overdue/alert"
	"overdue/monitor/notify"
	"overdue/scheduler"

	"github.com/cenkalti/backoff/v5"
	"go.uber.org/zap"
)

// notifyTime bounds the attempts to notify of one event. Then its companion is rewritten.
const notifyTime = 10 * time.Second

// notify sends the event of wt to every sink, then ends wt. It does not block: a slow sink must
// not delay the next check. The returned channel is closed when every sink has taken the event
// or failed.
func (w *Worker) notify(ctx context.Context, entity string, wt *watch) (over <-chan struct{}) {
	e := w.eventOf(entity, wt)
	k, ended := notify.KeyOf(e.ID), make(chan struct{})
	// Another watch may be notifying of the same event. This watch ends only if that one succeeds:
	// both may belong to one companion that came back, and otherwise the event would be lost.
	first := w.notified.Begin(k, func(r notify.Result) {
		defer close(ended)
		if r.Err == nil {
			wt.companion.done(ctx, nil)
			return
		}
		untaken := *wt.missed
		untaken.TakenBy = r.Taken
		wt.missed = &untaken
		w.notifyLater(ctx, entity, wt, r.Err)
	})
	if first {
		w.running.Go(func() {
			taken, err := w.notifyOnce(ctx, e, wt.missed.TakenBy, func() {
				if wt.ref.Missed == nil {
					w.metrics.notified(entity, &e)
				}
			})
			w.notified.End(k, notify.Result{Taken: taken, Err: err})
		})
	}
	return ended
}

// notifySinks sends e to all sinks in parallel, except to those in before, which have accepted it.
// Each sink has its own retries. It returns the names of the sinks that have taken e now.
func (w *Worker) notifySinks(ctx context.Context, e alert.Event, before []string) (taken []string, err error) {
	current := w.sinks.Load()
	errs := make([]error, len(current.alerters))
	var sinks sync.WaitGroup
	for i, a := range current.alerters {
		if slices.Contains(before, a.Name()) {
			continue
		}
		sinks.Go(func() {
			_, err := backoff.Retry(ctx, func() (struct{}, error) { return struct{}{}, a.Alert(ctx, e) },
				backoff.WithMaxElapsedTime(notifyTime), backoff.WithBackOff(backoff.NewExponentialBackOff()))
			if err != nil {
				errs[i] = fmt.Errorf("%s: %w", a.Name(), err)
			}
			if current.groups[a.Name()] == nil { // a group counts its own notifications
				w.metrics.alert(a.Name(), err)
			}
		})
	}
	sinks.Wait()
	for i, a := range current.alerters {
		if errs[i] == nil {
			taken = append(taken, a.Name())
		}
	}
	return taken, errors.Join(errs...)
}

// notifyLater rewrites the companion with the whole event, so that the notification needs neither
// this process nor the dead letter. After maxAttempts the companion goes to the dead-letter queue
// of the monitor queue.
func (w *Worker) notifyLater(ctx context.Context, entity string, wt *watch, err error) {
	attempt := wt.companion.content.Attempt + 1
	log := w.log.With(zap.String("work_queue", entity), zap.String("message_id", wt.ref.MessageID), zap.Int("attempt", attempt), zap.Error(err))
	if attempt > maxAttempts {
		log.Error("alert undeliverable")
		wt.companion.refuse(ctx, reasonUndeliverable, err.Error())
		return
	}
	wait := attemptDelay(attempt)
	log.Warn("alert not taken", zap.Duration("retry_in", wait))
	ref := wt.ref
	ref.Missed = wt.missed
	wt.companion.done(ctx, &scheduler.Companion{
		Entity: entity, Due: w.clock.now().Add(wait),
		References: []scheduler.Reference{ref}, Attempt: attempt,
	})
}
