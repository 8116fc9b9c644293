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
	err := e.describe(ctx, nil)
	if err == nil {
		e.noteSettled(due)
		err = run(ctx, undecided(due))
	}
	isMissing := e.noteOutcome(ctx, err, len(due))
	for _, wt := range due {
		switch {
		case wt.isDecided():
			e.conclude(ctx, wt)
		case isMissing:
			e.awaitWithWatch(ctx, wt)
		case err != nil:
			wt.failures++
			e.checkLater(ctx, wt, retryAfter(wt.failures, err))
		default:
			wt.failures = 0
			e.remind(ctx, wt, asked)
			e.conclude(ctx, wt)
		}
	}
}

// noteSettled notes the messages whose settlement has passed an endpoint of this process.
func (e *entity) noteSettled(watches []*watch) {
	for _, wt := range watches {
		if e.wasSettled(wt) {
			wt.see(foundOther)
		}
	}
}

// wasSettled reports whether a settlement of the message of wt has passed an endpoint.
func (e *entity) wasSettled(wt *watch) bool {
	return wt.ref != nil && !wt.ref.WithoutID() && wt.hops == 0 && e.w.cfg.Scheduler.Settled(e.name, wt.ref)
}

// round finds out what became of messages whose deadlines have passed, and expires those that are
// there ⑤. Sessions are received from a few at a time.
func (e *entity) round(ctx context.Context, due []*watch) error {
	scopes, rest := e.scopesOf(due)
	if err := e.checkScopes(ctx, nil, rest); err != nil {
		return err
	}
	for some := range slices.Chunk(scopes, maxScopes) {
		var watches []*watch
		for _, s := range some {
			watches = append(watches, s.watches...)
		}
		if err := e.checkScopes(ctx, some, watches); err != nil {
			return err
		}
	}
	return nil
}

// checkScopes makes one round: peek, nudge, letters, peek. The second peek shows what our nudge has
// expired although somebody has taken its letter. The receivers are open before the first peek, so
// that hardly any time passes between that and the nudge. Where the nudge cannot reach a message, a
// scan follows.
func (e *entity) checkScopes(ctx context.Context, scopes []*scope, watches []*watch) error {
	if len(watches) == 0 {
		return nil
	}
	defer e.closeScopes(ctx, scopes)
	if err := e.openScopes(ctx, scopes); err != nil {
		return err
	}
	if err := e.peekAt(ctx, watches); err != nil {
		return err
	}
	e.judgeSeen(watches)
	tried, err := e.nudgeScopes(ctx, scopes)
	if err == nil {
		var deferred []*watch
		deferred, err = e.expireDeferred(ctx, scopes)
		tried = append(tried, deferred...)
	}
	if err == nil {
		err = e.findExpired(ctx, filter(watches, (*watch).isGone), tried)
	}
	if err != nil {
		return err
	}
	scanned, err := e.scanScopes(ctx, scopes)
	if err == nil && len(scanned) > 0 {
		err = e.findExpired(ctx, nil, scanned)
	}
	for _, s := range scopes {
		s.noteAttempts(e.w.clock.Now())
	}
	return err
}

// peekAt looks which messages are on the work queue.
func (e *entity) peekAt(ctx context.Context, watches []*watch) error {
	if len(watches) == 0 {
		return nil
	}
	wanted := make([]search.Identity, len(watches))
	for i, wt := range watches {
		wanted[i] = wt.identity
		wt.there = false
	}
	began := time.Now()
	return e.work.Find(ctx, wanted, func(m *link.Message) {
		if wt := e.watches[search.IdentityOf(m)]; wt != nil {
			wt.seen, wt.seenAt, wt.there = m, began, true
			wt.learn(m)
		}
	})
}

// judgeSeen judges the messages that a peek has shown.
func (e *entity) judgeSeen(watches []*watch) {
	now := e.w.clock.Now().Add(-e.w.clock.Grain())
	for _, wt := range watches {
		if !wt.there {
			wt.see(notFound)
			continue
		}
		wt.judgement = e.judge(wt, now)
		wt.setDeadline(e.settings.Settings)
		if wt.judgement.Overdue {
			wt.see(leftInPlace)
		} else {
			wt.see(foundEarly)
		}
	}
}

// findExpired finds the letters of messages that are gone, and of those that a nudge or a scan
// tried to expire, and then looks for the latter again. One that stood there overdue and is gone
// now has expired, unless a consumer had it.
func (e *entity) findExpired(ctx context.Context, gone, tried []*watch) error {
	if err := e.findLetters(ctx, slices.Concat(gone, tried)); err != nil {
		return err
	}
	left := undecided(tried)
	if err := e.peekAt(ctx, left); err != nil {
		return err
	}
	for _, wt := range left {
		if wt.there {
			continue
		}
		wt.see(notFound)
		if e.isExpired(wt) {
			wt.expired = wt.seen
		}
		gone = append(gone, wt)
	}
	return e.findForwarded(ctx, undecided(gone))
}

// evidenceAge is how long it counts that a message stood there overdue: behind a line that was frozen
// meanwhile, a consumer may have settled it.
const evidenceAge = 200 * time.Millisecond

// isExpired reports whether the message of wt, which stood there overdue in this round and is gone
// behind an attempt to expire it, has expired: its time to live has passed, and no consumer held it.
// While the monitor has accepted a session, nobody else settles its messages.
func (e *entity) isExpired(wt *watch) bool {
	expiry, mortal := judge.NativeExpiry(wt.reference(), wt.seen, e.settings.Settings)
	if wt.judgement.Assumed || !mortal || expiry.After(e.w.clock.Latest()) {
		return false
	}
	return e.settings.sessions || wt.attempt.isFree(wt.seen) && time.Since(wt.seenAt) < evidenceAge
}

func (wt *watch) isGone() bool { return !wt.there }
