// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"overdue/internal/lag"
	"overdue/internal/servicebus/link"
	"overdue/scheduler"
)

const (
	// lagResolution is the interval between two peeks at a dead-letter queue. A peek is no receive,
	// and makes the broker expire nothing.
	lagResolution = 100 * time.Millisecond
	// lagGrace is how long the monitor may take after the last deadline.
	lagGrace = 20 * time.Second
)

// observe peeks until all messages are dead letters, or the time is over.
func (r *lagRun) observe(ctx context.Context, s *scheduler.Scheduler, result *LagResult) error {
	last := time.Now().Add(r.ttls[len(r.ttls)-1])
	eager := &observation{queue: r.queues.eager, ttls: r.ttls, until: last.Add(max(lagGrace, r.Wait))}
	native := &observation{queue: r.queues.native, ttls: r.ttls, until: last.Add(r.Wait)}
	var g errgroup.Group
	for _, o := range []*observation{eager, native} {
		g.Go(func() error { return o.run(ctx, r.Links, s) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	result.Eager, result.Native = eager.result(), native.result()
	result.eager, result.native = eager.all(), native.all()
	return nil
}

// An observation is what was seen of the dead letters of one queue.
type observation struct {
	queue string
	ttls  []time.Duration
	until time.Time
	lags  map[string]time.Duration // by message id
}

// run peeks until every message has been seen or the time is over.
func (o *observation) run(ctx context.Context, links *link.Namespace, s *scheduler.Scheduler) error {
	o.lags = map[string]time.Duration{}
	peeker, err := links.Peeker(ctx, o.queue+deadLetterQueue)
	if err != nil {
		return fmt.Errorf("peek at the dead letters of %s: %w", o.queue, err)
	}
	ttlOf := map[string]time.Duration{}
	for i, ttl := range o.ttls {
		ttlOf[lagID(i)] = ttl
	}
	tick := time.NewTicker(lagResolution)
	defer tick.Stop()
	for {
		ms, err := peeker.Peek(ctx, 0, len(o.ttls))
		if hasEnded(ctx) {
			return errInterrupted
		}
		if err != nil {
			return fmt.Errorf("peek at the dead letters of %s: %w", o.queue, err)
		}
		now := s.Now().Time
		for _, m := range ms {
			if _, seen := o.lags[m.MessageID]; !seen && ttlOf[m.MessageID] > 0 {
				o.lags[m.MessageID] = now.Sub(m.EnqueuedTime.Add(ttlOf[m.MessageID]))
			}
		}
		if len(o.lags) == len(o.ttls) || time.Now().After(o.until) {
			peeker.Close(ctx)
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// hasEnded reports whether ctx has ended. An operation that fails at its deadline may return before
// the timer of ctx has run.
func hasEnded(ctx context.Context) bool {
	deadline, limited := ctx.Deadline()
	return ctx.Err() != nil || limited && !time.Now().Before(deadline)
}

var errInterrupted = errors.New("interrupted before the end")

// all returns the lags. Negative ones come from the uncertainty of the clock, and count as 0.
func (o *observation) all() []time.Duration {
	var all []time.Duration
	for _, lag := range o.lags {
		all = append(all, max(lag, 0))
	}
	return all
}

func (o *observation) result() QueueLag {
	return QueueLag{DeadLettered: len(o.lags), Waiting: len(o.ttls) - len(o.lags), LagMs: lag.Of(o.all())}
}
