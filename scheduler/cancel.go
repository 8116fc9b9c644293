// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"overdue/internal/operations"
	"overdue/internal/servicebus/link"
	"overdue/scheduler/index"
)

const (
	// cancelDelay is how long a companion that has become needless waits for others, so that they
	// share a request. A round that failed is followed by a longer rest, which doubles up to
	// cancelRest. Where rights are missing that is all that is ever tried.
	cancelDelay = 2 * time.Second
	cancelRest  = 10 * time.Minute
	// cancelLead is how long before it is due a companion is left alone: a request that takes longer
	// would find it active.
	cancelLead = 3 * time.Second
	// cancelBatch bounds the companions of one request, and of one peek: what Service Bus allows.
	cancelBatch = 250
)

func (s *Scheduler) wakeCancel() {
	select {
	case s.needless <- struct{}{}:
	default:
	}
}

// RunCancel cancels companions that have become needless until ctx ends. What it does not get to
// becomes due for nothing. A failure ends a round; Config.Cancelled gets it.
func (s *Scheduler) RunCancel(ctx context.Context) error {
	if s.cfg.Index == nil {
		<-ctx.Done()
		return nil
	}
	c := canceller{s: s}
	for delay := cancelDelay; ; {
		select {
		case <-s.needless:
		case <-ctx.Done():
			return nil
		}
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return nil
		}
		if !c.collectNeedless() {
			continue
		}
		n, err := c.round(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if s.cfg.Cancelled != nil {
			s.cfg.Cancelled(n, err)
		}
		if delay = min(2*delay, cancelRest); err == nil {
			delay = cancelDelay
		}
		if len(c.waiting) > 0 {
			s.wakeCancel()
		}
	}
}

// A canceller is the state of RunCancel.
type canceller struct {
	s       *Scheduler
	waiting []index.Needless
}

// collectNeedless adds what has become needless, drops what is due too soon or is forgotten, and
// reports whether anything waits.
func (c *canceller) collectNeedless() bool {
	c.waiting = append(c.waiting, c.s.cfg.Index.Needless()...)
	earliest := c.s.Now().Time.Add(cancelLead)
	c.waiting = slices.DeleteFunc(c.waiting, func(n index.Needless) bool {
		_, known := c.s.cfg.Index.Number(n.ID)
		return !known || n.Due.Before(earliest)
	})
	return len(c.waiting) > 0
}

// round cancels what waits, as far as it is found on the monitor queues. A queue that fails keeps
// nothing of the others from being cancelled.
func (c *canceller) round(ctx context.Context) (n int, err error) {
	if c.s.cfg.Store != nil {
		return c.withdraw(ctx)
	}
	byLane := map[*lane][]index.Needless{}
	for _, w := range c.waiting {
		l := c.s.laneOf(w.Entity)
		byLane[l] = append(byLane[l], w)
	}
	c.waiting = nil
	for l, waiting := range byLane {
		cancelled, laneErr := c.roundOn(ctx, l, waiting)
		n, err = n+cancelled, errors.Join(err, laneErr)
	}
	return n, err
}

// roundOn is round for one monitor queue. What it leaves waits for the next.
func (c *canceller) roundOn(ctx context.Context, l *lane, waiting []index.Needless) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.s.cfg.WriteTimeout)
	defer cancel()
	node, err := c.s.cfg.Links.Peeker(ctx, l.queue)
	all := false
	if err == nil {
		defer node.Close(context.WithoutCancel(ctx))
		all, err = c.learn(ctx, node, l, waiting)
	}
	if err != nil {
		c.waiting = append(c.waiting, waiting...)
		return 0, fmt.Errorf("scheduler: search %s for companions: %w", l.queue, err)
	}
	var found []index.Needless
	for _, w := range waiting {
		if number, _ := c.s.cfg.Index.Number(w.ID); number != 0 {
			found = append(found, w)
		} else if !all { // else it is gone
			c.waiting = append(c.waiting, w)
		}
	}
	for part := range slices.Chunk(found, cancelBatch) {
		numbers := make([]int64, len(part))
		for i, w := range part {
			numbers[i], _ = c.s.cfg.Index.Number(w.ID)
		}
		c.s.cfg.Operations.Add(operations.Cancel, 1)
		if err := node.CancelScheduled(ctx, numbers); err != nil {
			// If one of them is gone, the error does not say which, and they become due.
			if link.Condition(err) != link.ConditionMessageNotFound {
				c.waiting = append(c.waiting, found[n:]...)
			}
			return n, fmt.Errorf("scheduler: cancel companions on %s: %w", l.queue, err)
		}
		for _, w := range part {
			c.cancelled(w)
		}
		n += len(part)
	}
	return n, nil
}

// cancelled notes that a companion is gone from the monitor queue.
func (c *canceller) cancelled(w index.Needless) {
	c.s.cfg.Index.Forget(w.ID)
	c.s.cfg.Deadlines.Add(w.Entity, operations.Met, w.Messages)
}

// errNotShown says that a peek at the monitor queue does not show what was written there.
var errNotShown = errors.New("none of the companions that wait is shown by a peek")

// learn reads on in the monitor queue until the numbers of all that wait are known. It notes those
// of others on the way, so that nothing is read twice. It makes a peek for each that waits at most:
// that is as much as cancelling can save. all reports whether it has read all there is.
func (c *canceller) learn(ctx context.Context, node *link.Peeker, l *lane, waiting []index.Needless) (all bool, err error) {
	unknown := map[index.ID]bool{}
	for _, w := range waiting {
		if number, _ := c.s.cfg.Index.Number(w.ID); number == 0 {
			unknown[w.ID] = true
		}
	}
	ours := 0
	for peeks := len(unknown); peeks > 0 && len(unknown) > 0; peeks-- {
		page, err := node.Peek(ctx, l.position.Load(), cancelBatch)
		c.s.cfg.Operations.Add(operations.Peek, 1)
		switch {
		case err != nil:
			return false, err
		case len(page) == 0 && ours == 0: // perhaps the queue was made again: its numbers begin again
			l.position.Store(0)
			return false, errNotShown
		case len(page) == 0:
			return true, nil
		}
		for _, m := range page {
			l.position.Store(m.SequenceNumber + 1)
			if id, ok := index.ParseID(m.MessageID); ok && m.State == link.Scheduled && c.s.cfg.Index.SetNumber(id, m.SequenceNumber) {
				ours++
				delete(unknown, id)
			}
		}
	}
	return false, nil
}
