// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"overdue/internal/sblink"
	"overdue/scheduler"

	"github.com/Azure/go-amqp"
)

const (
	// reasonDeadline is the dead-letter reason of messages expired by hand: their deadline
	// came before their time-to-live.
	reasonDeadline = "DeadlineExceeded"

	scanBatch = 200  // credits granted at once
	scanMost  = 5000 // live messages that a scan holds at most
	// scanWait is how long a scan waits for the first message of a batch, and scanGap for
	// each of the others.
	scanWait = 250 * time.Millisecond
	scanGap  = 20 * time.Millisecond
	// scanTime bounds a scan, well below the shortest lock duration (5 s), so that no lock
	// lapses under it: that would cost an innocent message a delivery.
	scanTime = 2 * time.Second
)

// scan receives from the head of the work queue until it has met every message of the
// watches, dead-letters those, and gives the others back with released, which changes
// nothing about them. A message that it does not meet is locked by somebody else.
func (e *entity) scan(ctx context.Context, watches []*watch) (err error) {
	r, err := e.w.cfg.Links.Receiver(ctx, e.name)
	if err != nil {
		return fmt.Errorf("monitor: scan %s: %w", e.name, err)
	}
	defer r.Close(ctx)
	s := scan{e: e, r: r, ours: map[int64]*watch{}}
	for _, wt := range watches {
		s.ours[wt.want.number] = wt
		s.last = max(s.last, wt.want.number)
	}
	// What was taken is given back whatever happens, and only at the end: given back
	// earlier it would be the head again.
	defer func() {
		released, releaseErr := r.GiveBack(ctx, s.live...)
		e.w.metrics.operation("release", released)
		err = errors.Join(err, releaseErr)
	}()
	if err := s.run(ctx); err != nil {
		return fmt.Errorf("monitor: scan %s: %w", e.name, err)
	}
	return nil
}

// scan is the state of one scan.
type scan struct {
	e    *entity
	r    *sblink.Receiver
	ours map[int64]*watch // by sequence number, until they are met
	last int64            // the highest of those numbers
	live []*amqp.Message  // taken, to be given back
}

func (s *scan) run(ctx context.Context) error {
	end := time.Now().Add(scanTime)
	for len(s.ours) > 0 && len(s.live) < scanMost && time.Now().Before(end) {
		if err := s.r.Grant(scanBatch); err != nil {
			return err
		}
		met, passed, err := s.batch(ctx, end)
		if err != nil {
			return err
		}
		if met < scanBatch || passed {
			return nil // the end of the queue, or beyond the last of ours
		}
	}
	return nil
}

// batch receives until the granted credits are used up, nothing more comes, or all of ours
// are behind. Credit that is left is drained.
func (s *scan) batch(ctx context.Context, end time.Time) (met int, passed bool, err error) {
	wait := scanWait
	for met < scanBatch && time.Now().Before(end) {
		m, err := s.r.Receive(ctx, wait)
		if err != nil {
			return met, passed, err
		}
		if m == nil {
			break
		}
		wait = scanGap
		met++
		done, err := s.meet(ctx, m)
		if err != nil {
			return met, passed, err
		}
		if passed = passed || done; passed {
			break
		}
	}
	if met == scanBatch {
		return met, passed, nil
	}
	if err := s.r.Drain(ctx); err != nil {
		return met, passed, err
	}
	for m := s.r.Prefetched(); m != nil; m = s.r.Prefetched() {
		met++
		if _, err := s.meet(ctx, m); err != nil {
			return met, passed, err
		}
	}
	return met, passed, nil
}

// meet dead-letters m if it is one of ours, and keeps it to be given back otherwise. It
// reports whether all of ours are behind.
func (s *scan) meet(ctx context.Context, m *amqp.Message) (passed bool, err error) {
	number, _ := m.Annotations["x-opt-sequence-number"].(int64)
	s.e.w.metrics.operation("scan", 1)
	wt := s.ours[number]
	if wt == nil {
		s.live = append(s.live, m)
		return number > s.last, nil
	}
	delete(s.ours, number)
	deadline := wt.judgement.deadline
	description := fmt.Sprintf("The message was not received by its deadline %s.", deadline.UTC().Format(time.RFC3339Nano))
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	if err := s.r.DeadLetter(ctx, m, reasonDeadline, description); err != nil {
		if sblink.Condition(err) == sblink.ConditionLockLost {
			return len(s.ours) == 0, nil // the next look tells what became of it
		}
		return false, fmt.Errorf("dead-letter: %w", err)
	}
	s.e.w.metrics.operation("dead-letter", 1)
	seen := wt.want.found
	wt.judgement.verdict = Gone
	wt.missed = &scheduler.Missed{
		SequenceNumber: number, EnqueuedTime: seen.EnqueuedTime, Deadline: deadline,
		DeadLetteredTime: s.e.w.clock.now(), DeadLetterReason: reasonDeadline, Strategy: strategyScan,
		CorrelationID: bounded(seen.CorrelationID), DeliveryCount: seen.DeliveryCount,
	}
	return len(s.ours) == 0, nil
}
