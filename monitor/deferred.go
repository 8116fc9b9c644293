// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"time"

	"overdue/monitor/scan"
)

// expireDeferred dead-letters deferred messages by sequence number, which affects no other message.
// In a session it needs the lock of the session. The broker expires a deferred message only when a
// client requests it: then the call fails, and its dead letter is found next ("Message expiration
// (Time to Live)", deferred messages).
//
// The attempt counts as a delivery. Where the deadline may not hold for the message, one attempt
// shows that: the broker delivers it, and it is deferred again.
//
// It returns the watches over messages that it did not get: locked, gone, or expired at the
// attempt.
func (r *round) expireDeferred(ctx context.Context) (left []*watch, err error) {
	for _, s := range r.scopes {
		if s.receiver == nil {
			continue
		}
		for _, wt := range s.watches {
			if !wt.isOverdue() || !wt.judgement.Deferred || r.isSpared(wt) || r.isRefuted(wt) {
				continue
			}
			if err := r.takeDeferred(ctx, s, wt); err != nil {
				return left, err
			}
			if wt.state == stateInFlight {
				left = append(left, wt)
			}
		}
	}
	return left, nil
}

// isRefuted reports whether the broker has delivered the message of wt after the deadline that is
// assumed of it. Each of many companions with its message-id would try that, at the cost of a
// delivery.
func (e *entity) isRefuted(wt *watch) bool {
	return wt.judgement.Assumed && !wt.deadline.After(e.refuted[wt.identity])
}

// takeDeferred dead-letters one deferred message.
func (r *round) takeDeferred(ctx context.Context, s *scope, wt *watch) error {
	isEarly := func(lockedUntil time.Time) bool {
		early := wt.judgement.Assumed || r.w.clock.IsEarly(wt.deadline, lockedUntil, r.settings.lock)
		switch {
		case wt.judgement.Assumed:
			if len(r.refuted) >= maxRemembered {
				clear(r.refuted)
			}
			r.refuted[wt.identity] = wt.deadline
		case early:
			wt.see(foundEarly)
		}
		return early
	}
	dead, err := r.work.DeadLetterDeferred(ctx, wt.identity.Number, s.session, scan.Reason, scan.Description(wt.deadline), isEarly)
	if dead {
		r.expireByHand(wt, strategyDeferred)
	}
	return err
}
