// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"time"

	"overdue/alert"

	"go.uber.org/zap"
)

// Notified is what the workers of several processes know of each other's notifications. Its calls are bounded to some 25 ms; an
// error means that nobody knows, and a worker goes by what it knows itself.
type Notified interface {
	// Begin claims the notification of an event. told: somebody has notified of it. Neither: another is about to.
	Begin(ctx context.Context, event string) (mine, told bool, err error)
	// End says how a telling ended that was claimed.
	End(ctx context.Context, event string, told bool) error
}

const (
	// claimWait is how long a worker leaves an event to another that is about to tell of it, and claimTick how often it
	// looks whether that has happened.
	claimWait = notifyTime + 5*time.Second
	claimTick = 250 * time.Millisecond
)

// notifyOnce hands e to all sinks, unless another process has. begin is called when it is this one that does.
func (w *Worker) notifyOnce(ctx context.Context, e alert.Event, before []string, begin func()) (taken []string, err error) {
	mine := false
	for end := time.Now().Add(claimWait); w.cfg.Notified != nil; {
		claimed, told, err := w.cfg.Notified.Begin(ctx, e.ID)
		if told {
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

// A Tally is what one worker has for the view of the fleet.
type Tally struct {
	Outstanding map[string]int64 // by entity: deadlines that have come and are not seen to
	Missed      map[string]int64 // by entity: since the last time
}

// Tally is taken by whoever reports it; what is missed is notified once.
func (w *Worker) Tally() Tally { return w.metrics.tally() }

// Untally takes back what could not be reported.
func (w *Worker) Untally(missed map[string]int64) { w.metrics.untally(missed) }
