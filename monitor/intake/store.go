// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"context"
	"time"

	"overdue/internal/redisstore"

	"go.uber.org/zap"
)

// Store keeps companions if the monitor queue cannot schedule messages. An item that a worker
// has claimed and not renewed for a while goes to another worker, so a claim is as good as a
// lock on a queue.
type Store interface {
	// Claim leases up to n items that are due at the instant now of the broker's clock, or that
	// a worker which is gone had. There is nothing more before wait is over or Woken has a
	// value. There may be leases beside an error.
	Claim(ctx context.Context, now time.Time, n int) (leases []redisstore.Lease, wait time.Duration, err error)
	Woken() <-chan struct{}
	// Renew keeps all that is claimed for as long as it takes to call it again, every
	// redisstore.RenewEvery.
	Renew(ctx context.Context) error

	Done(ctx context.Context, l redisstore.Lease) error
	GiveBack(ctx context.Context, l redisstore.Lease) error
	Bury(ctx context.Context, l redisstore.Lease, reason, description string) error
	// LetGo renews an item no more.
	LetGo(l redisstore.Lease)

	// HasNote reports whether a note is kept whose id begins so.
	HasNote(ctx context.Context, prefix string) (bool, error)
}

// claim claims companions until ctx ends. It waits until the clock of the broker is
// measured: by our own clock, companions might be checked early again and again.
func (in *Intake) claim(ctx, work context.Context) {
	select {
	case <-in.cfg.Scheduler.Measured():
	case <-ctx.Done():
		return
	}
	go in.renewClaims(work)
	for down := false; ctx.Err() == nil; {
		if in.isFull() {
			in.awaitRoom(ctx)
		}
		now := in.cfg.Clock.Latest()
		leases, wait, err := in.cfg.Store.Claim(ctx, now, in.window())
		for _, l := range leases {
			in.cfg.Clock.Observe(now) // it has passed, just now mostly
			in.take(work, &Lease{
				ID:          l.ID,
				Queue:       in.cfg.Queues[0],
				ContentType: l.ContentType,
				Body:        l.Body,
				settle: func(ctx context.Context, s settlement) error {
					return in.settleStored(ctx, l, s)
				},
			})
		}
		if ctx.Err() != nil {
			return
		}
		in.claimed.Store(err == nil)
		if (err != nil) != down {
			down = err != nil
			if down {
				in.log.Warn("companion store unreachable: no deadline is checked", zap.Error(err), zap.String("next", "check Redis and the setting redis; the monitor keeps trying"))
			} else {
				in.log.Info("companion store is back")
			}
		}
		select {
		case <-time.After(wait):
		case <-in.cfg.Store.Woken():
		case <-ctx.Done():
		}
	}
}

// renewClaims renews all claims.
func (in *Intake) renewClaims(ctx context.Context) {
	tick := time.NewTicker(redisstore.RenewEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if err := in.cfg.Store.Renew(ctx); err != nil && ctx.Err() == nil {
			in.log.Debug("companion leases not renewed, other workers may take them", zap.Error(err))
		}
	}
}

// settleStored settles a claimed item.
func (in *Intake) settleStored(ctx context.Context, l redisstore.Lease, s settlement) error {
	switch s.outcome {
	case completed:
		return in.cfg.Store.Done(ctx, l)
	case handedBack:
		return in.cfg.Store.GiveBack(ctx, l)
	case deadLettered:
		return in.cfg.Store.Bury(ctx, l, s.reason, s.description)
	}
	in.cfg.Store.LetGo(l)
	return nil
}
