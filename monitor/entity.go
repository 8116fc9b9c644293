// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"overdue/scheduler"

	"go.uber.org/zap"
)

const (
	// nearDeadline is how far off a deadline may be for the companion to stay in hand until
	// then. Beyond that it is rewritten, which costs three operations.
	nearDeadline = 5 * time.Second
	// A message in flight is checked again after lookAgainMin, then ever later up to
	// lookAgainMax, so that it is notified within a second of being given back.
	checkAgainMin = 200 * time.Millisecond
	checkAgainMax = 750 * time.Millisecond
	// crowdedWait takes the place of both while the worker has its hands full.
	crowdedWait = 5 * time.Second
	// idleLinks is how long the links to an entity stay open with nothing to check for.
	idleLinks = 2 * time.Second
)

// entity makes the passes over one work queue or subscription; that of a topic hands what comes in to its
// subscriptions. Its goroutine lives while there is something to check for, and owns every field but
// those of the worker's mutex.
type entity struct {
	w    *Worker
	key  string // in the worker's map
	name string // its path

	inbox       []*watch // under the worker's mutex
	stopping    atomic.Bool
	nudgesFirst atomic.Bool // a nudge is made for what comes in, before any check
	woken       chan struct{}

	watches           []*watch
	soonest           time.Time // none of them is due before; zero = there are none
	waiting           waiting
	nudger            nudger
	notifier          notifier
	checking          []*watch // taken out of watches for the pass that is made
	work              view
	dead              view
	transfer          view // of what it could not forward
	deadTarget        view // of what its dead letters are forwarded to; opened when they are
	ranges            rangeCache
	seen              seenIDs           // of both views: numbers are the same in the dead-letter queue
	adoptedDuplicates map[identity]bool // duplicates, see noteAdopted
	settings          entitySettings
	settingsAsOf      time.Time     // by our clock: older ones are of no use
	searchTook        time.Duration // what the last look took
	log               *zap.Logger
}

func newEntity(w *Worker, key, name string) *entity {
	e := &entity{w: w, key: key, name: name, woken: make(chan struct{}, 1), log: w.log.With(zap.String("work_queue", name))}
	e.work = view{links: w.cfg.Links, path: name, metrics: w.metrics, seen: &e.seen}
	e.dead = view{links: w.cfg.Links, path: name + "/$DeadLetterQueue", metrics: w.metrics, seen: &e.seen}
	e.transfer = view{links: w.cfg.Links, path: name + "/$Transfer/$DeadLetterQueue", metrics: w.metrics, seen: &e.seen}
	e.work.recreated, e.dead.recreated = e.forget, e.forget
	e.notifier = notifier{w: w, name: name}
	e.nudger = nudger{w: w, key: key, name: name, afterNudge: e.poke, log: e.log}
	return e
}

func (e *entity) poke() {
	select {
	case e.woken <- struct{}{}:
	default:
	}
}

// run makes a pass whenever a watch is due, and ends when there has been none for a while.
func (e *entity) run(ctx context.Context) {
	defer e.work.close(ctx)
	defer e.dead.close(ctx)
	defer e.transfer.close(ctx)
	defer e.deadTarget.close(ctx)
	for {
		if !e.takeInbox(ctx) {
			return
		}
		now := time.Now()
		if due := e.due(now); len(due) > 0 {
			e.handleDue(ctx, due, false)
			continue
		}
		if ripe := e.nudgedWatches(now); len(ripe) > 0 {
			peeks := e.work.peeks + e.dead.peeks
			e.handleDue(ctx, ripe, true)
			e.restAfter(e.work.peeks + e.dead.peeks - peeks)
			continue
		}
		select {
		case <-e.woken:
		case <-time.After(e.idle(now)):
			if e.empty() && e.leave() {
				return
			}
		}
	}
}

// empty reports whether there is nothing to check for.
func (e *entity) empty() bool { return len(e.watches) == 0 && len(e.waiting.watches) == 0 }

// idle is how long there is nothing to do, unless something comes in.
func (e *entity) idle(now time.Time) time.Duration {
	wait := idleLinks
	if len(e.watches) > 0 {
		wait = e.soonest.Sub(now)
	}
	if rest := e.waiting.rest.Sub(now); len(e.waiting.watches) > 0 && rest > 0 {
		wait = min(wait, rest)
	}
	return wait
}

// add adds to the watches in hand.
func (e *entity) add(watches ...*watch) {
	for _, wt := range watches {
		if at := wt.dueAt(); e.soonest.IsZero() || at.Before(e.soonest) {
			e.soonest = at
		}
	}
	e.watches = append(e.watches, watches...)
}

// dueAt is when to see to wt: at its time, or when its companion can be held no longer.
func (wt *watch) dueAt() time.Time {
	if wt.companion.until.Before(wt.next) {
		return wt.companion.until
	}
	return wt.next
}

// takeInbox takes what has come in. It reports false when the worker stops, after having
// handed back everything.
func (e *entity) takeInbox(ctx context.Context) bool {
	e.w.mu.Lock()
	e.add(e.inbox...)
	e.inbox = nil
	stopping := e.stopping.Load()
	if stopping && e.w.entities[e.key] == e {
		delete(e.w.entities, e.key)
	}
	e.w.mu.Unlock()
	if !stopping {
		return true
	}
	e.watches = append(e.watches, e.waiting.watches...)
	e.handBack(ctx)
	return false
}

// handBack gives the companions in hand to whichever worker is next. Of one that is done in part,
// or being notified, only the rest is given on: the next worker would tell of the others again.
func (e *entity) handBack(ctx context.Context) {
	left := map[*companion]int{}
	for _, wt := range e.watches {
		left[wt.companion]++
	}
	now := e.w.clock.now()
	for _, wt := range e.watches {
		switch n := left[wt.companion]; n {
		case 0: // handed back with another watch
		default:
			if !wt.companion.madeFor(n) {
				e.rewrite(ctx, wt, now)
				continue
			}
			left[wt.companion] = 0
			wt.companion.handBack(ctx)
		}
	}
}

// leave takes the entity out of the worker's map, unless something has just come in.
func (e *entity) leave() bool {
	e.w.mu.Lock()
	defer e.w.mu.Unlock()
	if len(e.inbox) > 0 {
		return false
	}
	delete(e.w.entities, e.key)
	return true
}

// due takes the watches out of the list whose time has come. Those of a companion that
// can be held no longer are due as well.
func (e *entity) due(now time.Time) []*watch {
	if len(e.watches) == 0 || e.soonest.After(now) {
		return nil
	}
	var due []*watch
	rest := e.watches[:0]
	e.soonest = time.Time{}
	for _, wt := range e.watches {
		at := wt.dueAt()
		if !at.After(now) {
			due = append(due, wt)
			continue
		}
		rest = append(rest, wt)
		if e.soonest.IsZero() || at.Before(e.soonest) {
			e.soonest = at
		}
	}
	clear(e.watches[len(rest):])
	e.watches = rest
	return due
}

// handleDue makes a pass and sorts its watches: done, told elsewhere, or to be checked
// again. A pass that fails is repeated, and has decided nothing; but what it or another
// has expired is notified.
//
// For the watches that have not waited for a nudge, one may be asked for first.
func (e *entity) handleDue(ctx context.Context, due []*watch, nudged bool) {
	if due = e.skipSettled(ctx, due); len(due) == 0 {
		return
	}
	at := e.w.latest() // what is found by the pass is there now, or later
	err := e.describe(ctx, due)
	reachable := err == nil && e.mayNudgeFirst()
	e.nudgesFirst.Store(reachable && e.missesDeadlines())
	if reachable && !nudged {
		if e.nudgesFirst.Load() {
			if due = e.awaitNudge(ctx, due); len(due) == 0 {
				return
			}
		} else if !slices.ContainsFunc(due, func(wt *watch) bool { return !wt.untried() }) {
			e.work.limit(peekBudget)
			defer e.work.limit(-1)
		}
	}
	if err == nil {
		due, err = e.searchSlots(ctx, due)
	}
	if err == nil && e.settings.topic {
		e.spreadToSubscriptions(ctx, due)
		return
	}
	if err == nil {
		due, err = e.collectMany(ctx, due)
	}
	if err == nil {
		err = e.check(ctx, due)
	}
	if errors.Is(err, errTooManyPeeks) {
		e.suspect()
		due, err = e.awaitNudge(ctx, due), nil
	} else if err == nil {
		e.learnFromNudges(ctx, due)
	}
	e.w.outage.noteResult(e.w.log, err)
	missing := entityMissing(err)
	e.noteMissing(missing, err)
	if missing {
		e.forget("what it was asked for")
	}
	if err != nil && !missing {
		logFailed(e.log, "pass failed", err, zap.Int("messages", len(due)))
		e.work.close(ctx)
		e.dead.close(ctx)
		e.transfer.close(ctx)
		e.deadTarget.close(ctx)
	}
	var missed, lost []*watch
	defer func() { e.notifier.add(ctx, missed) }() // ⑥
	for _, wt := range due {
		if err == nil {
			e.remind(ctx, wt, at)
		}
		if err == nil || wt.missed != nil {
			e.watchDuplicates(wt)
		}
		switch {
		case wt.missed != nil:
			if e.settings.forwardDead != "" && !wt.ref.Unnamed() {
				e.w.notified.note(e.forwardedID(wt.ref.MessageID))
			}
			missed = append(missed, wt)
		case missing && e.isGivenUp(wt):
			lost = append(lost, wt)
		case missing:
			e.awaitEntity(ctx, wt)
		case err != nil:
			e.later(ctx, wt, e.w.retryAfter(wt, err))
		default:
			wt.failures = 0
			e.conclude(ctx, wt)
		}
	}
	e.giveUp(ctx, lost)
}

// skipSettled ends the watches over messages that the endpoints of this process know to be settled, and returns the
// others.
func (e *entity) skipSettled(ctx context.Context, due []*watch) []*watch {
	return slices.DeleteFunc(due, func(wt *watch) bool {
		if wt.ref.Unnamed() || wt.missed != nil || wt.duplicate || wt.duplicates != 0 || wt.hops > 0 || !e.w.cfg.Scheduler.Settled(e.name, &wt.ref) {
			return false
		}
		e.w.metrics.verdict(e.name, verdictMet)
		wt.companion.done(ctx, nil)
		return true
	})
}

// later checks wt again after wait, from hand if its companion can be held for so
// long, and by a companion rewritten otherwise.
func (e *entity) later(ctx context.Context, wt *watch, wait time.Duration) {
	wt.next = time.Now().Add(wait)
	if wt.next.Before(wt.companion.until) {
		e.add(wt)
		return
	}
	e.rewrite(ctx, wt, e.w.clock.now().Add(wait))
}

// rewrite ends wt and has a companion written that takes over, due at the given instant of the
// broker's clock.
func (e *entity) rewrite(ctx context.Context, wt *watch, due time.Time) {
	if wt.slot != nil {
		c := *wt.slot
		c.Due = due
		wt.companion.done(ctx, &c)
		return
	}
	if wt.duplicates == whilePresent {
		wt.companion.done(ctx, nil) // it is sought anew with the one beside which it was
		return
	}
	ref := wt.ref
	ref.Missed = wt.missed
	wt.companion.done(ctx, &scheduler.Companion{
		Kind: scheduler.KindEach, Entity: e.name, Due: due,
		References: []scheduler.Reference{ref}, Attempt: wt.companion.content.Attempt,
	})
}
