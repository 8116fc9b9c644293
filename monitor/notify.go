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
	"overdue/scheduler"

	"github.com/cenkalti/backoff/v5"
	"go.uber.org/zap"
)

// notifyTime bounds the tries to tell one event before its companion is rewritten.
const notifyTime = 10 * time.Second

// notify takes the missed deadline of wt, or what else there is to tell, to every sink, then ends wt. It does not block: a
// slow sink must not hold up the next pass. What it returns is closed when all sinks have been notified, or cannot be.
func (w *Worker) notify(ctx context.Context, entity string, wt *watch) (over <-chan struct{}) {
	e := w.eventOf(entity, wt)
	t, first := w.notified.begin(e.ID)
	w.running.Go(func() {
		if first {
			taken, err := w.notifyOnce(ctx, e, wt.missed.TakenBy, func() {
				if wt.ref.Missed == nil {
					w.metrics.notified(entity, &e)
				}
			})
			w.notified.end(e.ID, t, taken, err)
		}
		// Another companion may be seeing to it. That this one is done as well rests on how that ends:
		// it may be the same one, come back, and the only one that is left.
		<-t.done
		if t.err != nil {
			untaken := *wt.missed
			untaken.TakenBy = t.taken
			wt.missed = &untaken
			w.notifyLater(ctx, entity, wt, t.err)
			return
		}
		wt.companion.done(ctx, nil)
	})
	return t.done
}

// notifySinks hands e to all sinks side by side, each with its own retries, but for those that
// have taken it before. It returns the names of all that have taken it now.
func (w *Worker) notifySinks(ctx context.Context, e alert.Event, before []string) (taken []string, err error) {
	told := w.sinks.Load()
	errs := make([]error, len(told.alerters))
	var sinks sync.WaitGroup
	for i, a := range told.alerters {
		if slices.Contains(before, a.Name()) {
			continue
		}
		sinks.Go(func() {
			_, err := backoff.Retry(ctx, func() (struct{}, error) { return struct{}{}, a.Alert(ctx, e) },
				backoff.WithMaxElapsedTime(notifyTime), backoff.WithBackOff(backoff.NewExponentialBackOff()))
			if err != nil {
				errs[i] = fmt.Errorf("%s: %w", a.Name(), err)
			}
			if told.groups[a.Name()] == nil { // those count their pages
				w.metrics.alert(a.Name(), err)
			}
		})
	}
	sinks.Wait()
	for i, a := range told.alerters {
		if errs[i] == nil {
			taken = append(taken, a.Name())
		}
	}
	return taken, errors.Join(errs...)
}

// notifyLater has the event told later: a companion rewritten carries all that is known, so
// it needs neither this process nor the dead-letter queue. When the budget is spent the
// companion goes to the dead-letter queue of the monitor queue.
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
		Kind: scheduler.KindEach, Entity: entity, Due: w.clock.now().Add(wait),
		References: []scheduler.Reference{ref}, Attempt: attempt,
	})
}
