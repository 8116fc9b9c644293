// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"time"

	"overdue/alert"

	"go.uber.org/zap"
)

// Told is what the workers of several processes know of each other's tellings. Its calls are bounded to some 25 ms; an
// error means that nobody knows, and a worker goes by what it knows itself.
type Told interface {
	// Begin claims the telling of an event. told: somebody has told of it. Neither: another is about to.
	Begin(ctx context.Context, event string) (mine, told bool, err error)
	// End says how a telling ended that was claimed.
	End(ctx context.Context, event string, told bool) error
}

const (
	// claimWait is how long a worker leaves an event to another that is about to tell of it, and claimTick how often it
	// looks whether that has happened.
	claimWait = tellTime + 5*time.Second
	claimTick = 250 * time.Millisecond
)

// tellOnce hands e to all sinks, unless another process has. begin is called when it is this one that does.
func (w *Worker) tellOnce(ctx context.Context, e alert.Event, before []string, begin func()) (taken []string, err error) {
	mine := false
	for end := time.Now().Add(claimWait); w.cfg.Told != nil; {
		claimed, told, err := w.cfg.Told.Begin(ctx, e.ID)
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
	taken, err = w.fanOut(ctx, e, before)
	if mine {
		if endErr := w.cfg.Told.End(ctx, e.ID, err == nil); endErr != nil {
			w.log.Debug("other monitors do not know of a telling", zap.String("event", e.ID), zap.Error(endErr))
		}
	}
	return taken, err
}

// A Tally is what one worker has for the view of the fleet.
type Tally struct {
	Outstanding map[string]int64 // by entity: deadlines that have come and are not seen to
	Missed      map[string]int64 // by entity: since the last time
}

// Tally is taken by whoever reports it; what is missed is told once.
func (w *Worker) Tally() Tally { return w.metrics.tally() }

// Untally takes back what could not be reported.
func (w *Worker) Untally(missed map[string]int64) { w.metrics.untally(missed) }
