// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"fmt"
	"time"

	"overdue/monitor/scan"
)

// nudgeTakes is how long it counts that a message was there before a nudge: over a line that was
// frozen, it may have been settled since.
const nudgeTakes = time.Second

// scanTakes is the same before a scan. In a session nobody else settles while that waits.
func (e *entity) scanTakes() time.Duration {
	if e.settings.sessions {
		return nudgeTakes
	}
	return scan.Wait
}

// scan dead-letters the messages of a scope by hand. One that it does not find is locked by a
// consumer.
func (e *entity) scan(ctx context.Context, l receiveScope) error {
	r, err := e.receiver(ctx, l)
	if err != nil {
		return fmt.Errorf("monitor: scan %s: %w", e.name, err)
	}
	if r == nil {
		return nil
	}
	defer r.Close(ctx)
	cfg := scan.Config{
		Receiver: r, Unordered: e.unordered(), Work: &e.work, Clock: &e.w.clock, Lock: e.settings.lock,
		// The dead letters that the credit has just made, as behind a nudge.
		Granted: func() error { return e.keepNewDeadLetters(ctx) },
		Kept:    &e.kept, Operations: e.w.metrics.Operations,
	}
	strategy := strategyScan
	if l.session != nil {
		// There they need no proof, see findAgain, and other scans run beside this one.
		strategy, cfg.Session, cfg.Granted = strategySession, true, func() error { return nil }
	}
	targets := make([]*scan.Target, len(l.watches))
	for i, wt := range l.watches {
		targets[i] = &scan.Target{Identity: wt.want.Identity, Deadline: wt.judgement.Deadline}
	}
	err = scan.Run(ctx, cfg, targets)
	for i, wt := range l.watches {
		switch targets[i].Outcome {
		case scan.Early:
			wt.see(foundEarly)
		case scan.DeadLettered:
			e.expiredByHand(wt, strategy)
		case scan.CutOff:
			wt.attempt.left = cutOff
		case scan.NotFound:
		}
	}
	if err != nil {
		return fmt.Errorf("monitor: scan %s: %w", e.name, err)
	}
	return nil
}
