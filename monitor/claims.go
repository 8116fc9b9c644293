// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"time"

	"overdue/alert"

	"go.uber.org/zap"
)

// Notified records which events the workers of several processes have notified of. A call takes
// about 25 ms at most. After an error, a worker relies on its own record.
type Notified interface {
	// Begin claims an event. done: some process has notified of it. Neither mine nor done: another
	// process has claimed it.
	Begin(ctx context.Context, event string) (mine, done bool, err error)
	// End reports the outcome of a claim.
	End(ctx context.Context, event string, done bool) error
}

const (
	// claimWait is how long a worker leaves an event to the process that claimed it, and claimTick
	// how often it asks for the outcome.
	claimWait = notifyTime + 5*time.Second
	claimTick = 250 * time.Millisecond
)

// notifyOnce notifies all sinks of e, unless another process has. It calls begin before it
// notifies.
func (w *Worker) notifyOnce(ctx context.Context, e alert.Event, before []string, begin func()) (taken []string, err error) {
	mine := false
	for end := time.Now().Add(claimWait); w.cfg.Notified != nil; {
		claimed, done, err := w.cfg.Notified.Begin(ctx, e.ID)
		if done {
			return nil, nil
		}
		if mine = claimed; mine || err != nil || time.Now().After(end) {
			break
		}
		select {
		case <-time.After(claimTick):
		case <-ctx.Done():
			return before, context.Cause(ctx)
		}
	}
	begin()
	taken, err = w.notifySinks(ctx, e, before)
	if mine {
		if endErr := w.cfg.Notified.End(ctx, e.ID, err == nil); endErr != nil {
			w.log.Debug("notification not recorded for other monitors", zap.String("event", e.ID), zap.Error(endErr))
		}
	}
	return taken, err
}

// A Tally is the share of one worker in the figures of all processes.
type Tally struct {
	Outstanding map[string]int64 // by entity: deadlines that are due and not handled
	Missed      map[string]int64 // by entity: since the last Tally
}

// Tally returns the figures since the last call.
func (w *Worker) Tally() Tally { return w.metrics.tally() }

// Untally adds missed deadlines back that could not be reported.
func (w *Worker) Untally(missed map[string]int64) { w.metrics.untally(missed) }
