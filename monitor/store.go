// SPDX-License-Identifier: Apache-2.0

package monitor

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
	// Renew keeps all that is claimed for as long as it takes to call it again, every renewEvery.
	Renew(ctx context.Context) error

	Done(ctx context.Context, l redisstore.Lease) error
	GiveBack(ctx context.Context, l redisstore.Lease) error
	Bury(ctx context.Context, l redisstore.Lease, reason, description string) error

	// HasNote reports whether a note is kept whose id begins so.
	HasNote(ctx context.Context, prefix string) (bool, error)
}

// renewEvery is the interval at which claims are renewed, well within the time after which they
// lapse.
const renewEvery = 5 * time.Second

// yieldTime is how much later than others a worker wakes for items that it has left to them.
const yieldTime = 50 * time.Millisecond

// claimRoom bounds the places that a worker reserves before it knows whether there are items.
const claimRoom = creditWindow

// claimFromStore claims companions until ctx ends. It waits until the clock of the broker is
// measured: by our own clock, companions might be checked early again and again.
func (w *Worker) claimFromStore(ctx, work context.Context) {
	select {
	case <-w.cfg.Scheduler.Measured():
	case <-ctx.Done():
		return
	}
	renewing, stop := context.WithCancel(work)
	defer stop()
	w.running.Go(func() { w.renewClaims(renewing) })
	for down := false; ctx.Err() == nil; {
		w.awaitEase(ctx)
		n, err := w.takeRoom(ctx, claimRoom, true)
		if err != nil {
			return
		}
		now := w.latest()
		leases, wait, err := w.cfg.Store.Claim(ctx, now, n)
		for range n - len(leases) {
			<-w.room
		}
		for _, l := range leases {
			w.take(work, &storeLease{w, l, now})
		}
		if ctx.Err() != nil {
			return
		}
		w.attached.Store(err == nil)
		if (err != nil) != down {
			down = err != nil
			w.logStore(err)
		}
		if w.yielding.take() {
			wait += yieldTime
		}
		select {
		case <-time.After(wait):
		case <-w.cfg.Store.Woken():
		case <-ctx.Done():
		}
	}
}

func (w *Worker) logStore(err error) {
	if err != nil {
		w.log.Warn("companion store unreachable: no deadline is checked", zap.Error(err), zap.String("next", "check Redis and the setting redis; the monitor goes on trying"))
	} else {
		w.log.Info("companion store is back")
	}
}

// renewClaims renews all claims.
func (w *Worker) renewClaims(ctx context.Context) {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if err := w.cfg.Store.Renew(ctx); err != nil && ctx.Err() == nil {
			w.log.Debug("companion leases not renewed, other workers may take them", zap.Error(err))
		}
	}
}

// storeLease is a claimed item.
type storeLease struct {
	w   *Worker
	l   redisstore.Lease
	now time.Time // by the broker's clock, at least: when it was
}

func (l *storeLease) id() string              { return l.l.ID }
func (l *storeLease) contentType() string     { return l.l.ContentType }
func (l *storeLease) body() []byte            { return l.l.Body }
func (l *storeLease) enqueuedTime() time.Time { return l.now }

func (l *storeLease) complete(ctx context.Context) error {
	return l.settle(ctx, func(ctx context.Context) error { return l.w.cfg.Store.Done(ctx, l.l) })
}

func (l *storeLease) handBack(ctx context.Context) error {
	return l.settle(ctx, func(ctx context.Context) error { return l.w.cfg.Store.GiveBack(ctx, l.l) })
}

func (l *storeLease) deadLetter(ctx context.Context, reason, description string) error {
	return l.settle(ctx, func(ctx context.Context) error { return l.w.cfg.Store.Bury(ctx, l.l, reason, description) })
}

func (l *storeLease) settle(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	return do(ctx)
}
