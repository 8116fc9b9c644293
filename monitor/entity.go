// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"container/heap"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"overdue/internal/servicebus/link"
	"overdue/monitor/nudge"
	"overdue/monitor/search"

	"go.uber.org/zap"
)

const (
	// nearDeadline is how far ahead a deadline may be for its companion to stay in hand.
	// Beyond that the companion is rewritten, which costs three operations.
	nearDeadline = 5 * time.Second
	// idleLinks is how long the links of an idle entity stay open, and the receiver of a round for
	// the next one.
	idleLinks = time.Second
	// maxRemembered bounds the entities of which anything is known, since every writer to the monitor
	// queue can choose names.
	maxRemembered = 10_000
	// maxRound bounds the watches of a round, so that it is over in some ten milliseconds. A message
	// that is due meanwhile expires in its nudge, and was not seen before.
	maxRound = 96
	// maxWatches bounds the watches of an entity, to about 100 MiB. Beyond that, companions wait.
	maxWatches = 1 << 18
)

// entity checks the messages of one work queue or subscription. The entity of a topic hands its
// rules to the subscriptions. Its goroutine runs while there is anything to do, and owns all
// fields but the inbox.
type entity struct {
	w            *Worker
	name         string // its path
	log          *zap.Logger
	inbox        inbox
	agenda       agenda // rules to read, and watches to check
	watches      map[search.Identity]*watch
	nudges       nudges // in fast mode
	work         *search.View
	backlog      search.Backlog // of work, for slots over many times to live
	letters      letters
	receiver     *link.Receiver // without credit, open between the rounds of a burst; nil: none
	settings     entitySettings
	missingSince time.Time // by our clock: it does not exist since then; zero: it does
}

// inbox is what comes in for an entity. Its methods are safe for concurrent use.
type inbox struct {
	mu       sync.Mutex
	rules    []*rule
	running  bool // the goroutine of the entity
	woken    chan struct{}
	fast     atomic.Bool // nudge for what comes in, without a peek
	sessions atomic.Bool // a receiver without a session was refused
}

func newEntity(w *Worker, name string) *entity {
	e := &entity{
		w:       w,
		name:    name,
		log:     w.log.With(zap.String("work_queue", name)),
		inbox:   inbox{woken: make(chan struct{}, 1)},
		watches: map[search.Identity]*watch{},
	}
	e.work = &search.View{
		Links:      w.cfg.Links,
		Path:       name,
		Next:       []string{name, name + "/$DeadLetterQueue/$management"},
		Operations: w.metrics.Operations,
		Recreated:  e.forget,
	}
	e.letters.view = &search.View{
		Links:      w.cfg.Links,
		Path:       name + "/$DeadLetterQueue",
		Operations: w.metrics.Operations,
		Recreated:  e.forget,
	}
	e.nudges = newNudges(nudge.Config{
		Links:      w.cfg.Links,
		Path:       name,
		Clock:      &w.clock,
		Operations: w.metrics.Operations,
		Remembered: nearDeadline,
		Nudged: func(err error) {
			if link.Condition(err) == link.ConditionNotAllowed {
				e.inbox.sessions.Store(true)
			}
			if err != nil {
				logFailed(e.log, "nudge failed", err)
			}
			e.inbox.wakeUp()
		},
		Go: w.running.Go,
	})
	return e
}

// put takes rules in, and starts the goroutine of e if it does not run. In fast mode it requests
// the nudges for them at once, since the goroutine may be busy with a long read.
func (e *entity) put(work context.Context, rules []*rule) {
	if e.inbox.fast.Load() && !e.w.isStopping() {
		for _, r := range rules {
			e.nudges.requestFor(work, r, &e.w.clock)
		}
	}
	e.inbox.mu.Lock()
	e.inbox.rules = append(e.inbox.rules, rules...)
	starts := !e.inbox.running
	e.inbox.running = true
	e.inbox.mu.Unlock()
	if starts {
		e.w.running.Go(func() { e.run(work) })
	}
	e.inbox.wakeUp()
}

func (i *inbox) wakeUp() {
	select {
	case i.woken <- struct{}{}:
	default:
	}
}

// take returns the rules that have come in.
func (i *inbox) take() []*rule {
	i.mu.Lock()
	defer i.mu.Unlock()
	rules := i.rules
	i.rules = nil
	return rules
}

func (i *inbox) isRunning() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.running
}

// leave ends the goroutine of the entity, unless a rule has just come in.
func (i *inbox) leave() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.running = len(i.rules) > 0
	return !i.running
}

// run reads rules and checks watches when they become due. It returns after idleLinks without
// any, and when the worker stops.
func (e *entity) run(ctx context.Context) {
	leave := func() bool { // the next goroutine has the links from then on
		e.closeLinks(ctx)
		return e.inbox.leave()
	}
	for {
		for _, r := range e.inbox.take() {
			heap.Push(&e.agenda, r)
		}
		if e.w.isStopping() {
			e.stop(ctx)
			if leave() {
				return
			}
			continue
		}
		if e.step(ctx) {
			continue
		}
		select {
		case <-e.inbox.woken:
		case <-time.After(e.idle(ctx)):
			if len(e.agenda)+e.nudges.ripe.Len() == 0 && e.nudges.Rest() == nil && leave() {
				return
			}
		}
	}
}

// step handles what is due now: first the watches, since their deadlines are now, then the rules,
// whose deadlines are still to come. It reports whether there was anything.
func (e *entity) step(ctx context.Context) (some bool) {
	rules, watches := e.agenda.takeDue(time.Now())
	watches = e.agenda.putOff(e.awaitNudges(ctx, inHand(watches)))
	if len(watches) > 0 {
		e.check(ctx, watches, e.runRounds)
	}
	if len(rules) > 0 {
		e.read(ctx, rules)
	}
	ripe := inHand(e.nudges.take(time.Now(), e.w.clock.Grain()))
	if len(ripe) > 0 {
		e.check(ctx, ripe, e.readLetters)
	}
	e.inbox.fast.Store(e.isFast())
	return len(rules)+len(watches)+len(ripe) > 0
}

// idle returns how long there is nothing to do unless a rule comes in. It has the receiver open by
// then if that is for a nudge, and closed if that is long.
func (e *entity) idle(ctx context.Context) time.Duration {
	wait := idleLinks
	if len(e.agenda) > 0 {
		wait = min(wait, time.Until(e.agenda[0].when()))
	}
	if e.nudges.ripe.Len() > 0 {
		wait = min(wait, max(time.Until(e.nudges.rest), time.Millisecond))
	}
	nudgesItself := !e.isFast() && e.settings.nudgeReachesAll() && e.agenda.awaitsNudge(e.settings.Settings)
	if wait >= idleLinks {
		e.closeReceiver(ctx)
	} else if e.receiver == nil && nudgesItself {
		began := time.Now()
		_ = (&round{entity: e, scopes: []*scope{{}}}).openScopes(ctx) // the round tries again, and reports it
		wait = max(wait-time.Since(began), 0)
	}
	return wait
}

// awaitsNudge reports whether the next thing to do is a nudge of the entity itself.
func (a agenda) awaitsNudge(s Settings) bool {
	if len(a) == 0 {
		return false
	}
	wt, isWatch := a[0].(*watch)
	return isWatch && wt.state == stateWaiting && wt.isNative(s)
}

// closeLinks closes all links. They open again when they are used.
func (e *entity) closeLinks(ctx context.Context) {
	e.closeReceiver(ctx)
	e.work.Close(ctx)
	e.letters.close(ctx)
}

// forget drops what is known of e, which was deleted or recreated.
func (e *entity) forget(noticedBy string) {
	e.log.Info("entity was recreated or deleted: cached state dropped", zap.String("noticed_by", noticedBy))
	e.backlog.Reset()
	e.work.Forget()
	e.letters.forget()
	e.settings.asOf = time.Now()
	e.inbox.sessions.Store(false)
}

// stop releases the companions in hand. It first decides about messages whose nudge was made:
// only here is it known what that found.
func (e *entity) stop(ctx context.Context) {
	if ended := e.nudges.Rest(); ended != nil {
		<-ended
	}
	if ripe := inHand(e.nudges.takeAll()); len(ripe) > 0 {
		e.check(ctx, ripe, e.readLetters)
	}
	now := e.w.clock.Now()
	for _, item := range e.agenda {
		if rl, isRule := item.(*rule); isRule {
			rl.companion.HandBack(ctx, e.again(rl, now))
		}
	}
	for _, wt := range e.watches {
		for _, c := range wt.companions {
			c.HandBack(ctx, wt.again(e.name, now, c.Content.Attempt))
		}
	}
	e.agenda = nil
	clear(e.watches)
}
