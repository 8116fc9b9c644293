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

	// Notes shows f the notes whose ids begin so.
	Notes(ctx context.Context, prefix string, f func(redisstore.Item)) error
}

// stored is the feed of a store.
type stored struct {
	in    *Intake
	store Store
}

// receive claims companions until that fails or ctx ends. It waits until the clock of the broker is
// measured: by our own clock, companions might be checked early again and again.
func (f *stored) receive(ctx, work context.Context, s *source) error {
	select {
	case <-f.in.cfg.Scheduler.Measured():
	case <-ctx.Done():
	}
	for ctx.Err() == nil {
		f.in.awaitRoom(ctx)
		now := f.in.cfg.Clock.Latest()
		leases, wait, err := f.store.Claim(ctx, now, f.in.window())
		for _, l := range leases {
			f.in.cfg.Clock.Observe(now) // it has passed, just now mostly
			f.take(work, s, l)
		}
		if err != nil {
			return err
		}
		if !s.attached.Swap(true) {
			f.in.log.Info("companion store attached")
		}
		select {
		case <-time.After(wait):
		case <-f.store.Woken():
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// take hands a claimed item to the worker.
func (f *stored) take(work context.Context, s *source, l redisstore.Lease) {
	f.in.take(work, &Lease{
		ID:          l.ID,
		Queue:       s.name,
		ContentType: l.ContentType,
		Body:        l.Body,
		settle: func(ctx context.Context, st settlement) error {
			switch st.outcome {
			case completed:
				return f.store.Done(ctx, l)
			case handedBack:
				return f.store.GiveBack(ctx, l)
			case deadLettered:
				return f.store.Bury(ctx, l, st.reason, st.description)
			}
			f.store.LetGo(l)
			return nil
		},
	})
}

// renew renews all claims.
func (f *stored) renew(work context.Context) {
	for {
		select {
		case <-time.After(redisstore.RenewEvery):
		case <-work.Done():
			return
		}
		if err := f.store.Renew(work); err != nil && work.Err() == nil {
			f.in.log.Debug("companion leases not renewed, other workers may take them", zap.Error(err))
		}
	}
}
