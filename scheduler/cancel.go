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

// cancelDelay is how long a companion that has become needless waits for others, so that they
// share a request. It doubles with each round that fails: where rights are missing nearly nothing
// is tried, and after an outage cancelling goes on within as long a time again. A companion that is
// due within cancelDelay is left alone: a request that takes longer would find it active.
const cancelDelay = 2 * time.Second

// RunCancel cancels companions that have become needless until ctx ends. Companions that it does
// not get to become due for nothing. A failure ends a round; Config.Cancelled gets it.
func (s *Scheduler) RunCancel(ctx context.Context) error {
	for delay := cancelDelay; ; {
		if len(s.listNeedless()) == 0 {
			select {
			case <-s.index.HasNeedless():
			case <-ctx.Done():
				return nil
			}
		}
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return nil
		}
		waiting := s.listNeedless()
		if len(waiting) == 0 {
			continue
		}
		n, err := s.cancelNeedless(ctx, waiting)
		if ctx.Err() != nil {
			return nil
		}
		if s.cfg.Cancelled != nil {
			s.cfg.Cancelled(n, err)
		}
		if delay *= 2; err == nil {
			delay = cancelDelay
		}
	}
}

// listNeedless returns the companions that can be cancelled in time.
func (s *Scheduler) listNeedless() []index.Needless {
	return s.index.Needless(s.Now().Time.Add(cancelDelay))
}

// cancelNeedless cancels what is found on the monitor queues. A queue that fails keeps nothing of
// the others from being cancelled.
func (s *Scheduler) cancelNeedless(ctx context.Context, waiting []index.Needless) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if s.cfg.Store != nil {
		return s.withdraw(ctx, waiting)
	}
	for _, l := range s.lanes {
		others := func(w index.Needless) bool { return s.laneOf(w.Entity) != l }
		mine := slices.DeleteFunc(slices.Clone(waiting), others)
		if len(mine) == 0 {
			continue
		}
		laneErr := s.manage(ctx, l, func(node *link.Peeker) error {
			cancelled, err := s.cancelOn(ctx, node, l, mine)
			n += cancelled
			return err
		})
		if laneErr != nil {
			err = errors.Join(err, fmt.Errorf("scheduler: cancel companions on %s: %w", l.queue, laneErr))
		}
	}
	return n, err
}

// cancelOn cancels the companions that wait on one monitor queue. Those that it does not find yet
// have another round.
func (s *Scheduler) cancelOn(ctx context.Context, node *link.Peeker, l *lane, waiting []index.Needless) (n int, err error) {
	if err := s.learnNumbers(ctx, node, l, waiting); err != nil {
		return 0, err
	}
	waiting = slices.DeleteFunc(waiting, func(w index.Needless) bool { return w.Number == 0 })
	for part := range slices.Chunk(waiting, link.PageSize) {
		numbers := make([]int64, len(part))
		for i, w := range part {
			numbers[i] = w.Number
		}
		s.cfg.Operations.Add(operations.Cancel, 1)
		err := node.CancelScheduled(ctx, numbers)
		if err != nil && link.Condition(err) != link.ConditionMessageNotFound {
			return n, err
		}
		for _, w := range part { // if one is gone, the error does not say which, and all become due
			s.index.Forget(w.ID)
		}
		if err != nil {
			return n, err
		}
		s.countCancelled(part)
		n += len(part)
	}
	return n, nil
}

func (s *Scheduler) countCancelled(cancelled []index.Needless) {
	for _, w := range cancelled {
		s.cfg.Deadlines.Add(w.Entity, operations.Met, w.Messages)
	}
}

// errNotShown says that a peek at the monitor queue does not show what was written there.
var errNotShown = errors.New("none of the companions that wait is shown by a peek")

// learnNumbers reads on in the monitor queue until the numbers of all that wait are known. It notes
// those of others on the way, so that nothing is read twice. It makes a peek for each that waits at
// most: that is as much as cancelling can save. Those that the queue no longer has are forgotten.
func (s *Scheduler) learnNumbers(ctx context.Context, node *link.Peeker, l *lane, waiting []index.Needless) error {
	unknown := map[index.ID]*index.Needless{}
	for i := range waiting {
		if waiting[i].Number == 0 {
			unknown[waiting[i].ID] = &waiting[i]
		}
	}
	ours := 0
	for peeks := len(unknown); peeks > 0 && len(unknown) > 0; peeks-- {
		page, err := node.Peek(ctx, l.position.Load(), link.PageSize)
		s.cfg.Operations.Add(operations.Peek, 1)
		switch {
		case err != nil:
			return err
		case len(page) == 0 && ours == 0: // perhaps the queue was made again: its numbers begin again
			l.position.Store(0)
			return errNotShown
		case len(page) == 0:
			for id := range unknown {
				s.index.Forget(id)
			}
			return nil
		}
		for _, m := range page {
			l.position.Store(m.SequenceNumber + 1)
			id, ok := index.ParseID(m.MessageID)
			if !ok || m.State != link.Scheduled || !s.index.SetNumber(id, m.SequenceNumber) {
				continue
			}
			ours++
			if w := unknown[id]; w != nil {
				w.Number = m.SequenceNumber
				delete(unknown, id)
			}
		}
	}
	return nil
}

// withdraw cancels companions in the store, which finds them by their ids. Those that it does not
// find have become due.
func (s *Scheduler) withdraw(ctx context.Context, waiting []index.Needless) (n int, err error) {
	for part := range slices.Chunk(waiting, link.PageSize) {
		ids := make([]string, len(part))
		for i, w := range part {
			ids[i] = w.ID.String()
			s.index.Forget(w.ID)
		}
		withdrawn, err := s.cfg.Store.Withdraw(ctx, ids)
		s.countCancelled(slices.DeleteFunc(part, func(w index.Needless) bool { return !slices.Contains(withdrawn, w.ID.String()) }))
		if n += len(withdrawn); err != nil {
			return n, fmt.Errorf("scheduler: cancel companions in the companion store: %w", err)
		}
	}
	return n, nil
}
