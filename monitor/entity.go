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
	// then. Beyond that it is written anew, which costs three operations.
	nearDeadline = 5 * time.Second
	// A message in flight is looked at again after lookAgainMin, then ever later up to
	// lookAgainMax, so that it is told within a second of being given back.
	lookAgainMin = 200 * time.Millisecond
	lookAgainMax = 750 * time.Millisecond
	// crowdedWait takes the place of both while the worker has its hands full.
	crowdedWait = 5 * time.Second
	// idleLinks is how long the links to an entity stay open with nothing to look for.
	idleLinks = 2 * time.Second
)

// entity makes the passes over one work queue or subscription; that of a topic hands what comes in to its
// subscriptions. Its goroutine lives while there is something to look for, and owns every field but
// those of the worker's mutex.
type entity struct {
	w    *Worker
	key  string // in the worker's map
	name string // its path

	inbox    []*watch // under the worker's mutex
	stopping atomic.Bool
	nudges   atomic.Bool // a nudge is made for what comes in, before any look
	woken    chan struct{}

	watches      []*watch
	soonest      time.Time // none of them is due before; zero = there are none
	waiting      waiting
	nudger       nudger
	teller       teller
	passing      []*watch // taken out of watches for the pass that is made
	work         view
	dead         view
	transfer     view // of what it could not forward
	heir         view // of what its dead letters are forwarded to; opened when they are
	shelf        shelf
	memory       memory        // of both views: numbers are the same in the dead-letter queue
	adopted      map[seat]bool // namesakes, see noteAdopted
	traits       traits
	settingsAsOf time.Time     // by our clock: older ones are of no use
	looked       time.Duration // what the last look took
	log          *zap.Logger
}

func newEntity(w *Worker, key, name string) *entity {
	e := &entity{w: w, key: key, name: name, woken: make(chan struct{}, 1), log: w.log.With(zap.String("work_queue", name))}
	e.work = view{links: w.cfg.Links, path: name, metrics: w.metrics, memory: &e.memory}
	e.dead = view{links: w.cfg.Links, path: name + "/$DeadLetterQueue", metrics: w.metrics, memory: &e.memory}
	e.transfer = view{links: w.cfg.Links, path: name + "/$Transfer/$DeadLetterQueue", metrics: w.metrics, memory: &e.memory}
	e.work.remade, e.dead.remade = e.forget, e.forget
	e.teller = teller{w: w, name: name}
	e.nudger = nudger{w: w, key: key, name: name, over: e.poke, log: e.log}
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
	defer e.heir.close(ctx)
	for {
		if !e.collect(ctx) {
			return
		}
		now := time.Now()
		if due := e.due(now); len(due) > 0 {
			e.attempt(ctx, due, false)
			continue
		}
		if ripe := e.ripe(now); len(ripe) > 0 {
			peeks := e.work.peeks + e.dead.peeks
			e.attempt(ctx, ripe, true)
			e.rest(e.work.peeks + e.dead.peeks - peeks)
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

// empty reports whether there is nothing to look for.
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

// keep adds to the watches in hand.
func (e *entity) keep(watches ...*watch) {
	for _, wt := range watches {
		if at := wt.rings(); e.soonest.IsZero() || at.Before(e.soonest) {
			e.soonest = at
		}
	}
	e.watches = append(e.watches, watches...)
}

// rings is when to see to wt: at its time, or when its companion can be held no longer.
func (wt *watch) rings() time.Time {
	if wt.held.until.Before(wt.next) {
		return wt.held.until
	}
	return wt.next
}

// collect takes what has come in. It reports false when the worker stops, after having
// handed back everything.
func (e *entity) collect(ctx context.Context) bool {
	e.w.mu.Lock()
	e.keep(e.inbox...)
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
// or being told, only the rest is given on: the next worker would tell of the others again.
func (e *entity) handBack(ctx context.Context) {
	left := map[*held]int{}
	for _, wt := range e.watches {
		left[wt.held]++
	}
	now := e.w.clock.now()
	for _, wt := range e.watches {
		switch n := left[wt.held]; n {
		case 0: // handed back with another watch
		default:
			if !wt.held.all(n) {
				e.anew(ctx, wt, now)
				continue
			}
			left[wt.held] = 0
			wt.held.handBack(ctx)
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
		at := wt.rings()
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

// attempt makes a pass and sorts its watches: done, told elsewhere, or to be looked at
// again. A pass that fails is made again, and has decided nothing; but what it or another
// has expired is told.
//
// For the watches that have not waited for a nudge, one may be asked for first.
func (e *entity) attempt(ctx context.Context, due []*watch, nudged bool) {
	if due = e.spare(ctx, due); len(due) == 0 {
		return
	}
	at := e.w.latest() // what is found by the pass is there now, or later
	err := e.describe(ctx, due)
	reachable := err == nil && e.reachable()
	e.nudges.Store(reachable && e.misses())
	if reachable && !nudged {
		if e.nudges.Load() {
			if due = e.awaitNudge(ctx, due); len(due) == 0 {
				return
			}
		} else if !slices.ContainsFunc(due, func(wt *watch) bool { return !wt.fresh() }) {
			e.work.limit(lookBudget)
			defer e.work.limit(-1)
		}
	}
	if err == nil {
		due, err = e.unfold(ctx, due)
	}
	if err == nil && e.traits.topic {
		e.spread(ctx, due)
		return
	}
	if err == nil {
		due, err = e.gather(ctx, due)
	}
	if err == nil {
		err = e.pass(ctx, due)
	}
	if errors.Is(err, errCostly) {
		e.suspect()
		due, err = e.awaitNudge(ctx, due), nil
	} else if err == nil {
		e.weigh(ctx, due)
	}
	e.w.outage.note(e.w.log, err)
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
		e.heir.close(ctx)
	}
	var missed, lost []*watch
	defer func() { e.teller.add(ctx, missed) }() // ⑥
	for _, wt := range due {
		if err == nil {
			e.announce(ctx, wt, at)
		}
		if err == nil || wt.missed != nil {
			e.seekNamesakes(wt)
		}
		switch {
		case wt.missed != nil:
			if e.traits.forwardDead != "" && !wt.ref.Unnamed() {
				e.w.told.note(e.forwardedID(wt.ref.MessageID))
			}
			missed = append(missed, wt)
		case missing && e.forsaken(wt):
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
	e.forsake(ctx, lost)
}

// spare ends the watches over messages that the doors of this process know to be settled, and returns the
// others.
func (e *entity) spare(ctx context.Context, due []*watch) []*watch {
	return slices.DeleteFunc(due, func(wt *watch) bool {
		if wt.ref.Unnamed() || wt.missed != nil || wt.namesake || wt.others != 0 || wt.hops > 0 || !e.w.cfg.Scheduler.Settled(e.name, &wt.ref) {
			return false
		}
		e.w.metrics.verdict(e.name, verdictMet)
		wt.held.done(ctx, nil)
		return true
	})
}

// later looks at wt again after wait, from hand if its companion can be held for so
// long, and by a companion written anew otherwise.
func (e *entity) later(ctx context.Context, wt *watch, wait time.Duration) {
	wt.next = time.Now().Add(wait)
	if wt.next.Before(wt.held.until) {
		e.keep(wt)
		return
	}
	e.anew(ctx, wt, e.w.clock.now().Add(wait))
}

// anew ends wt and has a companion written that takes over, due at the given instant of the
// broker's clock.
func (e *entity) anew(ctx context.Context, wt *watch, due time.Time) {
	if wt.slot != nil {
		c := *wt.slot
		c.Due = due
		wt.held.done(ctx, &c)
		return
	}
	if wt.others == othersBeside {
		wt.held.done(ctx, nil) // it is sought anew with the one beside which it was
		return
	}
	ref := wt.ref
	ref.Missed = wt.missed
	wt.held.done(ctx, &scheduler.Companion{
		Kind: scheduler.KindEach, Entity: e.name, Due: due,
		References: []scheduler.Reference{ref}, Attempt: wt.held.companion.Attempt,
	})
}
