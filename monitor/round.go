// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"slices"
	"time"

	"overdue/internal/servicebus/link"
	"overdue/monitor/judge"
	"overdue/monitor/search"
)

// check runs a round over watches that are due ④, and hands each one on by what it found. After an
// error they are checked again, but missed deadlines that it found are notified.
func (e *entity) check(ctx context.Context, due []*watch, run func(context.Context, []*watch) error) {
	asked := e.w.clock.Latest() // a message that the round finds was there at this instant, or later
	err := e.describe(ctx)
	if err == nil {
		for _, wt := range due {
			if settled, _ := e.wasSettled(wt); settled {
				wt.see(stateMet)
			}
		}
		err = run(ctx, undecided(due))
	}
	isMissing := e.noteOutcome(ctx, err, len(due))
	for _, wt := range due {
		switch {
		case wt.isDecided():
			e.conclude(ctx, wt)
		case isMissing && e.isGivenUp(wt.deadline):
			e.finish(ctx, wt, whyMissing)
		case isMissing:
			e.checkLater(ctx, wt, e.w.missingWait(e.missingSince))
		case err != nil:
			e.checkLater(ctx, wt, retryAfter(err))
		default:
			e.remind(ctx, wt, asked)
			e.conclude(ctx, wt)
		}
	}
}

// wasSettled reports whether the message of wt was settled through an endpoint, or is just now.
func (e *entity) wasSettled(wt *watch) (settled, maybe bool) {
	return e.w.cfg.Scheduler.IsSettled(e.name, wt.identity.Number, wt.identity.EnqueuedTime())
}

// A round finds out what became of messages whose deadlines have passed, and expires those that are
// there ⑤: peek, nudge, letters, peek.
type round struct {
	*entity
	watches []*watch
	scopes  []*scope // of the watches for which an attempt is due
}

// runRounds makes one round over watches, or several where these are in many sessions.
func (e *entity) runRounds(ctx context.Context, due []*watch) error {
	scopes, rest := scopesOf(due, e.settings.sessions, e.w.clock.Now())
	if err := (&round{entity: e, watches: rest}).run(ctx); err != nil {
		return err
	}
	for some := range slices.Chunk(scopes, maxScopes) {
		r := &round{entity: e, scopes: some}
		for _, s := range some {
			r.watches = append(r.watches, s.watches...)
		}
		if err := r.run(ctx); err != nil {
			return err
		}
	}
	return nil
}

// run makes the round. The second peek shows what our nudge has expired although somebody has taken
// its letter. The receivers are open before the first peek, so that hardly any time passes between
// that and the nudge. Where the nudge cannot reach a message, a scan follows.
func (r *round) run(ctx context.Context) error {
	if len(r.watches) == 0 {
		return nil
	}
	defer r.closeScopes(ctx)
	if err := r.openScopes(ctx); err != nil {
		return err
	}
	if err := r.peekAt(ctx, r.watches); err != nil {
		return err
	}
	r.judgeSeen(r.watches)
	tried, err := r.nudge(ctx)
	if err == nil {
		var deferred []*watch
		deferred, err = r.expireDeferred(ctx)
		tried = append(tried, deferred...)
	}
	if err == nil {
		err = r.findExpired(ctx, filter(r.watches, (*watch).isGone), tried)
	}
	if err != nil {
		return err
	}
	scanned, err := r.scan(ctx)
	if err == nil && len(scanned) > 0 {
		err = r.findExpired(ctx, nil, scanned)
	}
	for _, s := range r.scopes {
		s.noteAttempts(r.w.clock.Now())
	}
	return err
}

// peekAt looks which messages are on the work queue.
func (r *round) peekAt(ctx context.Context, watches []*watch) error {
	if len(watches) == 0 {
		return nil
	}
	wanted := make([]search.Identity, len(watches))
	for i, wt := range watches {
		wanted[i] = wt.identity
		wt.there = false
	}
	began := time.Now()
	return r.work.Find(ctx, wanted, func(m *link.Message) {
		if wt := r.entity.watches[search.IdentityOf(m)]; wt != nil {
			wt.seen, wt.seenAt, wt.there = m, began, true
			wt.learn(m)
		}
	})
}

// judgeSeen judges the messages that a peek has shown.
func (r *round) judgeSeen(watches []*watch) {
	now := r.w.clock.Now().Add(-r.w.clock.Grain())
	for _, wt := range watches {
		if !wt.there {
			wt.see(stateGone)
			continue
		}
		wt.judgement = wt.judge(&r.settings, now)
		wt.setDeadline(r.settings.Settings)
		if wt.judgement.Overdue {
			wt.see(stateInFlight)
		} else {
			wt.see(stateWaiting)
		}
	}
}

// findExpired finds the letters of messages that are gone, and of those that a nudge or a scan
// tried to expire, and then looks for the latter again. One that stood there overdue and is gone
// now has expired, unless a consumer had it.
func (r *round) findExpired(ctx context.Context, gone, tried []*watch) error {
	if err := r.findLetters(ctx, slices.Concat(gone, tried)); err != nil {
		return err
	}
	left := undecided(tried)
	if err := r.peekAt(ctx, left); err != nil {
		return err
	}
	for _, wt := range left {
		if wt.there {
			continue
		}
		wt.see(stateGone)
		if r.isExpired(wt) {
			wt.expired = wt.seen
		}
		gone = append(gone, wt)
	}
	return r.findForwarded(ctx, undecided(gone))
}

// evidenceAge is how long it counts that a message stood there overdue: behind a line that was
// frozen meanwhile, a consumer may have settled it.
const evidenceAge = 200 * time.Millisecond

// isExpired reports whether the message of wt, which stood there overdue in this round and is gone
// behind an attempt to expire it, has expired. It has if its time to live has passed and no
// consumer held it. While the monitor has accepted a session, nobody else settles its messages.
func (r *round) isExpired(wt *watch) bool {
	expiry, mortal := judge.NativeExpiry(wt.reference(), wt.seen, r.settings.Settings)
	if wt.judgement.Assumed || !mortal || expiry.After(r.w.clock.Latest()) {
		return false
	}
	return r.settings.sessions || wt.attempt.isFree(wt.seen) && time.Since(wt.seenAt) < evidenceAge
}

func (wt *watch) isGone() bool { return !wt.there }
