// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"errors"
	"time"

	"overdue/monitor/notify"

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

// errClaimed: another process is notifying of the event.
var errClaimed = errors.New("claimed by another monitor")

// claim has the event sent, unless another process has notified of it.
func (n *notification) claim() {
	id := n.event().ID
	mine, done := false, false
	began := time.Now()
	n.w.claims.Put(&notify.Job{
		Send: func() (err error) {
			if mine, done, err = n.w.cfg.Notified.Begin(n.ctx, id); mine || done || err != nil || time.Since(began) > claimWait {
				return nil
			}
			return errClaimed
		},
		End: func(error) {
			if done {
				n.end(notify.Result{})
				return
			}
			if end := n.end; mine {
				n.end = func(r notify.Result) { n.endClaim(id, r, end) }
			}
			n.send()
		},
	})
}

// endClaim reports the outcome of a claim, then ends the notification.
func (n *notification) endClaim(id string, r notify.Result, end func(notify.Result)) {
	n.w.claims.Put(&notify.Job{
		Send: func() error {
			if err := n.w.cfg.Notified.End(n.ctx, id, r.Err == nil); err != nil {
				n.w.log.Debug("notification not recorded for other monitors", zap.String("event", id), zap.Error(err))
			}
			return nil
		},
		End: func(error) { end(r) },
	})
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
