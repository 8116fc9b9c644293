// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"context"
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

const (
	// claimWait is how long a worker leaves an event to the process that claimed it: an attempt of
	// that process may take 30 s by default, after others have taken budget.
	claimWait = 30*time.Second + budget
	// claimRetry is how long it waits before it asks again.
	claimRetry = 500 * time.Millisecond
)

// claim has the event sent, unless another process notifies of it until the claim of that process
// is given up.
func (e *notification) claim(giveUp time.Time) {
	id := e.event().ID
	mine, done, asked := false, false, error(nil)
	e.n.claims.Put(&Job{
		Send: func() error {
			mine, done, asked = e.n.cfg.Shared.Begin(e.ctx, id)
			return nil
		},
		End: func(stopped error) {
			switch {
			case done:
				e.end(Result{})
				return
			case mine:
				end := e.end
				e.end = func(r Result) { e.endClaim(id, r, end) }
			case stopped == nil && asked == nil && time.Now().Before(giveUp): // another process has it
				time.AfterFunc(claimRetry, func() { e.claim(giveUp) })
				return
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
