// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"overdue/monitor/scan"
)

// expireDeferred dead-letters deferred messages by sequence number, which affects no other message.
// In a session it needs the lock of the session. The broker expires a deferred message only when a
// client requests it: then the call fails, and the message is a dead letter at the next check
// ("Message expiration (Time to Live)", deferred messages).
func (e *entity) expireDeferred(ctx context.Context, watches []*watch) error {
	if err := e.learnSessions(ctx, watches); err != nil {
		return err
	}
	for _, l := range e.scopes(watches) {
		if err := e.takeDeferred(ctx, l); err != nil {
			return err
		}
	}
	left := unaccounted(watches)
	if err := e.readDeadLetters(ctx, left); err != nil {
		return err
	}
	return e.findAgain(ctx, present(left), nudgeTakes)
}

// learnSessions opens a receiver without a session, if it is not known whether the entity requires
// sessions. If it does, that fails, and the next check knows. Otherwise a deferred message would be
// received without the lock of its session, while a consumer may hold that lock, or not at all.
func (e *entity) learnSessions(ctx context.Context, watches []*watch) error {
	inSession := func(wt *watch) bool { return wt.want.Found.SessionID != "" }
	if e.settings.known || e.settings.sessions || e.w.states.get(e.key).noSessions || !slices.ContainsFunc(watches, inSession) {
		return nil
	}
	r, err := e.receiver(ctx, receiveScope{watches: watches})
	if err != nil {
		return fmt.Errorf("monitor: expire deferred messages of %s: %w", e.name, err)
	}
	if r != nil {
		r.Close(ctx)
		e.w.states.update(e.key, func(f *entityState) { f.noSessions = true })
	}
	return nil
}

// takeDeferred dead-letters deferred messages of one scope. A message that it does not get is
// locked, gone, or has expired at this attempt.
func (e *entity) takeDeferred(ctx context.Context, l receiveScope) error {
	if l.session != nil {
		r, err := e.receiver(ctx, l)
		if r == nil || err != nil {
			return err
		}
		defer r.Close(ctx)
	}
	for _, wt := range l.watches {
		early := func(lockedUntil time.Time) bool {
			if wt.judgement.Assumed { // the broker decides, and it has delivered it
				if wt.ref.Stated == "default" && wt.ref.DeadlineAt(wt.want.Found.EnqueuedTime).After(e.w.clock.Now()) {
					return true // that refutes a newer default, not that of its companion
				}
				e.refuted.Set(wt.want.Identity, wt.judgement.Deadline)
				return true
			}
			if !e.w.clock.IsEarly(wt.judgement.Deadline, lockedUntil, e.settings.lock) {
				return false
			}
			wt.see(foundEarly)
			return true
		}
		dead, err := e.work.DeadLetterDeferred(ctx, wt.want.Number, l.session, scan.Reason, scan.Description(wt.judgement.Deadline), early)
		if err != nil {
			return err
		}
		if dead {
			e.expiredByHand(wt, strategyDeferred)
		}
	}
	return nil
}

// isRefuted reports whether the broker has delivered the message of wt after the deadline that is
// assumed of it. Each of many references with its id would try that, at the cost of a delivery.
func (e *entity) isRefuted(wt *watch) bool {
	at, known := e.refuted[wt.want.Identity]
	return known && wt.judgement.Assumed && !wt.judgement.Deadline.After(at)
}
