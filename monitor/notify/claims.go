// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"
)

// Shared records which events the workers of several processes have notified of. A call takes
// about 25 ms at most. After an error, a worker relies on its own record.
type Shared interface {
	// Begin claims an event. done: some process has notified of it. Neither mine nor done: another
	// process has claimed it.
	Begin(ctx context.Context, event string) (mine, done bool, err error)
	// End reports the outcome of a claim.
	End(ctx context.Context, event string, done bool) error
}

// claimWait is how long a worker leaves an event to the process that claimed it.
const claimWait = budget + 5*time.Second

// errClaimed: another process is notifying of the event.
var errClaimed = errors.New("claimed by another monitor")

// claim has the event sent, unless another process has notified of it.
func (e *notification) claim() {
	id := e.event().ID
	mine, done := false, false
	began := time.Now()
	e.n.claims.Put(&Job{
		Send: func() (err error) {
			if mine, done, err = e.n.cfg.Shared.Begin(e.ctx, id); mine || done || err != nil || time.Since(began) > claimWait {
				return nil
			}
			return errClaimed
		},
		End: func(error) {
			if done {
				e.end(Result{})
				return
			}
			if end := e.end; mine {
				e.end = func(r Result) { e.endClaim(id, r, end) }
			}
			e.send()
		},
	})
}

// endClaim reports the outcome of a claim, then ends the notification.
func (e *notification) endClaim(id string, r Result, end func(Result)) {
	e.n.claims.Put(&Job{
		Send: func() error {
			if err := e.n.cfg.Shared.End(e.ctx, id, r.Err == nil); err != nil {
				e.n.log.Debug("notification not recorded for other monitors", zap.String("event", id), zap.Error(err))
			}
			return nil
		},
		End: func(error) { end(r) },
	})
}
