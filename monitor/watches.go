// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"time"

	"overdue/internal/servicebus/link"
	"overdue/monitor/search"
)

// watchIdentity watches a message of which the number, the stamp and the time to live are known. It
// reports whether the message is in hand.
func (r *reading) watchIdentity(ctx context.Context, rl *rule, identity search.Identity, life time.Duration) bool {
	if wt := r.e.watches[identity]; wt != nil {
		r.hold(rl, wt)
		return true
	}
	deadline := identity.EnqueuedTime().Add(life)
	if !r.e.isNear(deadline) {
		rl.rearm(deadline)
		return false
	}
	wt := &watch{identity: identity, hops: rl.hops, deadline: deadline, due: deadline}
	if rl.slot == nil {
		ref := rl.ref
		wt.ref = &ref
	}
	r.hold(rl, wt)
	r.e.postpone(ctx, wt)
	return true
}

// watchMessage watches a message that a reference names, at the instant now of the clock of the
// broker. Where nothing is due soon, its companion is rewritten instead.
func (r *reading) watchMessage(ctx context.Context, rl *rule, m *link.Message, now time.Time) {
	identity := search.IdentityOf(m)
	if wt := r.e.watches[identity]; wt != nil {
		r.hold(rl, wt)
		return
	}
	ref := rl.ref
	wt := &watch{identity: identity, ref: &ref, hops: rl.hops, seen: m, seenAt: time.Now(), there: true}
	wt.learn(m)
	wt.judgement = r.e.judge(wt, now)
	wt.setDeadline(r.e.settings.Settings)
	next := wt.nextReminder(&r.e.settings)
	switch {
	case next.IsZero():
		rl.match(identity) // nothing is left to notify of
	case search.Pending(m) || !r.e.isNear(next):
		rl.rearm(next)
	default:
		r.hold(rl, wt)
		r.e.postpone(ctx, wt)
	}
}

// watchLetter watches a message that has expired, until it is notified of.
func (r *reading) watchLetter(ctx context.Context, rl *rule, letter *link.Message, deadline time.Time) {
	wt := r.e.watches[search.IdentityOf(letter)]
	if wt == nil {
		wt = &watch{identity: search.IdentityOf(letter), hops: rl.hops, deadline: deadline, due: deadline}
		if rl.slot == nil {
			ref := rl.ref
			wt.ref = &ref
		}
	}
	r.hold(rl, wt)
	wt.expire(r.e.missed(wt, letter))
	r.e.conclude(ctx, wt)
}

// hold takes wt in hand, for the companion of rl.
func (r *reading) hold(rl *rule, wt *watch) {
	rl.match(wt.identity)
	wt.attach(rl.companion)
	if r.e.watches[wt.identity] == nil {
		wt.index = -1
		r.e.watches[wt.identity] = wt
	}
}

// isNear reports whether an instant of the clock of the broker is so near that a companion is held
// until then. Where the clock of the worker is that far behind, since its companion was due long
// ago, it seems nearer than it is: a rewritten companion comes with a new stamp.
func (e *entity) isNear(t time.Time) bool {
	wait := e.w.clock.Until(t)
	isBehind := e.w.clock.Latest().Sub(t) > nearDeadline
	return wait <= 0 || wait <= nearDeadline && !isBehind
}
