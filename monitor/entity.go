// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"overdue/alert"
	"overdue/monitor/metrics"
	"overdue/monitor/nudge"
	"overdue/monitor/search"
	"overdue/scheduler"

	"go.uber.org/zap"
)

const (
	// nearDeadline is how far ahead a deadline may be for its companion to stay in hand.
	// Beyond that the companion is rewritten, which costs three operations.
	nearDeadline = 5 * time.Second
	// A message in flight is checked again after checkAgainMin, then at growing intervals up
	// to checkAgainMax. So its notification follows within a second after a consumer gives it
	// back.
	checkAgainMin = 200 * time.Millisecond
	checkAgainMax = 750 * time.Millisecond
	// idleLinks is how long the links of an idle entity stay open.
	idleLinks = 2 * time.Second
)

// entity checks the messages of one work queue or subscription. The entity of a topic hands its
// watches to the subscriptions. Its goroutine runs while there are watches. It owns all fields,
// except those that are guarded by the mutex of the worker.
type entity struct {
	w    *Worker
	key  string // in the map of the worker
	name string // its path

	inbox       []*watch    // guarded by the mutex of the worker
	nudgesFirst atomic.Bool // nudge for watches that come in, before any check
	woken       chan struct{}

	watches           []*watch
	soonest           time.Time // no watch is due before; zero: none
	waiting           waiting
	nudger            *nudge.Nudger
	checking          []*watch // the watches of the running check
	work              search.View
	dead              search.View
	deadTarget        search.View // the queue that its dead letters are forwarded to, if they are
	kept              search.Kept // dead letters that were read right behind a receive
	newLetters        search.NewLetters
	ranges            search.RangeCache
	prefetcher        search.Prefetcher                // of ranges
	slots             nudge.Slots                      // in hand
	readForNudge      time.Time                        // by our clock: see mayNudge, which owns it
	clearedAt         time.Time                        // by our clock: see isCleared
	proven            atomic.Pointer[search.TimeRange] // see isProven; nil: nothing
	seen              search.SeenIDs                   // in work and dead, with the same numbers
	adoptedDuplicates search.Marks                     // they have companions
	refuted           search.Marks                     // see isRefuted
	settings          entitySettings
	settingsAsOf      time.Time     // by our clock: older descriptions are stale
	began             time.Time     // by our clock: the last check
	searchTook        time.Duration // duration of the last search
	peekedAt          time.Time     // by our clock: what a search found was there; zero: unknown
	opened            chan opened   // the receiver that a check has opened ahead; nil: none
	notifiedAtOnce    int           // messages of slots, by the running check
	log               *zap.Logger
}

func newEntity(w *Worker, key, name string) *entity {
	e := &entity{w: w, key: key, name: name, woken: make(chan struct{}, 1), log: w.log.With(zap.String("work_queue", name))}
	e.work = search.View{Links: w.cfg.Links, Path: name, Next: []string{name, name + "/$DeadLetterQueue/$management"}, Operations: w.metrics.Operations, Seen: &e.seen}
	e.dead = search.View{Links: w.cfg.Links, Path: name + "/$DeadLetterQueue", Operations: w.metrics.Operations, Seen: &e.seen, Kept: &e.kept, Differ: e.lettersMayDiffer}
	e.work.Recreated, e.dead.Recreated = e.forget, e.forget
	e.nudger = nudge.New(nudge.Config{
		Links: w.cfg.Links, Path: name, Clock: &w.clock, Operations: w.metrics.Operations,
		Letters: e.deadLetters, First: func() bool { return e.order() == nudge.NudgeFirst }, Many: e.hasMany, Proven: e.isProven, May: e.mayNudge,
		Sessions: func() { w.states.update(key, func(f *entityState) { f.sessions = true }) },
		Failed:   func(err error) { logFailed(e.log, "nudge failed", err) }, Nudged: e.wakeUp, Read: e.sawNewLetters, Go: w.running.Go,
	})
	e.prefetcher = search.Prefetcher{
		Links: w.cfg.Links, Path: name, Operations: w.metrics.Operations, Seen: &e.seen, Cache: &e.ranges,
		Final: e.finalRanges, Fetched: func() { e.nudger.Retry(); e.wakeUp() }, Go: w.running.Go,
	}
	return e
}

// eventID returns the id of the event about a missed deadline.
func (e *entity) eventID(number int64, enqueued time.Time) string {
	return alert.IDOf(e.name, number, enqueued)
}

func (e *entity) wakeUp() {
	select {
	case e.woken <- struct{}{}:
	default:
	}
}

// run checks watches when they become due. It returns after idleLinks without any.
func (e *entity) run(ctx context.Context) {
	defer e.closeViews(ctx)
	defer e.prefetcher.End()
	for {
		if !e.takeInbox(ctx) {
			return
		}
		now := time.Now()
		e.began = now
		if due := e.due(now); len(due) > 0 {
			e.handleDue(ctx, due, false)
			continue
		}
		if ripe := e.nudgedWatches(now); len(ripe) > 0 {
			peeks := e.dead.Peeks
			e.handleDue(ctx, ripe, true)
			peeks = e.dead.Peeks - peeks
			e.waiting.rest = time.Now().Add(min(max(time.Duration(peeks)*peekRest, time.Duration(peeks*peeks)*pageRest), waitMost))
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

// closeViews closes the links of all views. They open again when they are used.
func (e *entity) closeViews(ctx context.Context) {
	for _, v := range []*search.View{&e.work, &e.dead, &e.deadTarget} {
		v.Close(ctx)
	}
}

// empty reports whether there are no watches.
func (e *entity) empty() bool { return len(e.watches) == 0 && len(e.waiting.watches) == 0 }

// idle returns how long there is nothing to do unless a watch comes in.
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

// add takes watches in hand.
func (e *entity) add(watches ...*watch) {
	for _, wt := range watches {
		if at := wt.next; e.soonest.IsZero() || at.Before(e.soonest) {
			e.soonest = at
		}
	}
	e.watches = append(e.watches, watches...)
}

// takeInbox takes the watches that came in. When the worker stops, it releases all companions
// and reports false.
func (e *entity) takeInbox(ctx context.Context) bool {
	e.w.mu.Lock()
	e.add(e.inbox...)
	e.inbox = nil
	stopping := e.w.stopping
	if stopping && e.w.entities[e.key] == e {
		delete(e.w.entities, e.key)
	}
	e.w.mu.Unlock()
	if !stopping {
		return true
	}
	e.prefetcher.End()
	e.nudger.End()
	e.waiting.rest = time.Time{}
	if ripe := e.nudgedWatches(time.Now()); len(ripe) > 0 { // only here is it known what the nudge found
		e.handleDue(ctx, ripe, true)
	}
	e.watches = append(e.watches, e.waiting.watches...)
	e.handBack(ctx)
	return false
}

// handBack leaves the watches in hand to the next worker.
func (e *entity) handBack(ctx context.Context) {
	now := e.w.clock.Now()
	for _, wt := range e.watches {
		wt.companion.HandBack(ctx, e.partOf(wt, now))
	}
}

// leave removes the entity from the worker, unless a watch has just come in, or a nudge is under
// way.
func (e *entity) leave() bool {
	e.w.mu.Lock()
	defer e.w.mu.Unlock()
	if len(e.inbox) > 0 || !e.nudger.Rest() {
		return false
	}
	delete(e.w.entities, e.key)
	return true
}

// due removes the watches from the list that are due.
func (e *entity) due(now time.Time) []*watch {
	if len(e.watches) == 0 || e.soonest.After(now) {
		return nil
	}
	var due []*watch
	rest := e.watches[:0]
	e.soonest = time.Time{}
	for _, wt := range e.watches {
		at := wt.next
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

// skipSettled ends the watches over messages whose settlement passed an endpoint of this
// process, and returns the others.
func (e *entity) skipSettled(ctx context.Context, due []*watch) []*watch {
	return slices.DeleteFunc(due, func(wt *watch) bool {
		if wt.state == stateMissed || !e.wasSettled(wt) {
			return false
		}
		e.w.metrics.Verdict(e.name, metrics.Met)
		wt.companion.Done(ctx, nil)
		return true
	})
}

// wasSettled reports whether a settlement of the message of wt has passed an endpoint.
func (e *entity) wasSettled(wt *watch) bool {
	return !wt.ref.WithoutID() && wt.duplicates == 0 && wt.hops == 0 && e.w.cfg.Scheduler.Settled(e.name, &wt.ref)
}

// later has wt checked again after wait: from hand if its companion may wait for so long, otherwise
// by rewriting the companion.
func (e *entity) later(ctx context.Context, wt *watch, wait time.Duration) {
	if wt.companion.MayWait(wait) {
		wt.next = time.Now().Add(wait)
		e.add(wt)
		return
	}
	e.rewrite(ctx, wt, e.w.clock.Now().Add(wait))
}

// rewrite ends wt and writes a companion that takes over, due at an instant of the clock of the
// broker.
func (e *entity) rewrite(ctx context.Context, wt *watch, due time.Time) {
	wt.companion.Done(ctx, e.partOf(wt, due))
}

// partOf returns the companion that takes over from that of wt.
func (e *entity) partOf(wt *watch, due time.Time) *scheduler.Companion {
	if wt.slot != nil {
		c := *wt.slot
		c.Due = due
		return &c
	}
	wt.ref = e.rest(wt)
	return wt.again(e.name, due, wt.companion.Content.Attempt)
}
