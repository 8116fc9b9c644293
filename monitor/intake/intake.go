// SPDX-License-Identifier: Apache-2.0

// Package intake receives companions from the monitor queues, or claims them from a store. It keeps
// each one under its lock while its messages are checked, and settles it when the last of them is
// handled.
package intake

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"overdue/internal/operations"
	"overdue/internal/servicebus/link"
	"overdue/scheduler"

	"go.uber.org/zap"
)

const (
	// maxHeld bounds the companions in hand: their locks are renewed, and their settlements are under
	// way together. The others stay on the monitor queue, where any worker can receive them.
	maxHeld = 5000
	// maxWatched bounds the messages in hand: those that are checked, and those whose events wait for
	// their sinks. Beyond one of both, a worker receives no companion until half are handled.
	maxWatched = 250_000
)

// A Clock is what is known of the clock of the broker.
type Clock interface {
	Observe(stamp time.Time) // that the broker has just made
	Latest() time.Time       // may be ahead by the error of a measurement
}

// Config configures an Intake.
type Config struct {
	Links       *link.Namespace
	Scheduler   *scheduler.Scheduler // rewrites companions
	Queues      []string             // the monitor queues
	Store       Store                // keeps the companions instead of the monitor queues; may be nil
	Clock       Clock
	Take        func(ctx context.Context, l *Lease) // gets each lease, and must not block
	Outstanding func(entity string, n int)          // n more references of an entity are in hand
	// Recreated is called when a queue is there again that was deleted, with its companions: at the
	// instant since by the clock of the broker, or a little later.
	Recreated  func(queue string, since time.Time)
	Operations *operations.Counter
	Log        *zap.Logger
}

// An Intake receives the companions of one worker.
type Intake struct {
	cfg      Config
	log      *zap.Logger
	held     atomic.Int64  // leases in hand
	watching atomic.Int64  // messages in hand
	eased    chan struct{} // one token: there may be room again
	yield    atomic.Bool   // Yield was called
	claimed  atomic.Bool   // the store has answered
	settling sync.WaitGroup

	mu     sync.Mutex
	queues []*queue
	start  func(*queue) // nil when none may start: before Run, and when it ends
	ended  sync.WaitGroup
}

// New makes an Intake. Run starts it.
func New(cfg Config) *Intake {
	in := &Intake{
		cfg:   cfg,
		log:   cfg.Log,
		eased: make(chan struct{}, 1),
	}
	for _, name := range cfg.Queues {
		in.queues = append(in.queues, in.newQueue(name))
	}
	return in
}

// Run receives companions until ctx ends. What it has received stays locked until work ends, and
// can be settled until the caller calls release.
func (in *Intake) Run(ctx, work context.Context) (release func()) {
	if in.cfg.Store != nil {
		in.claim(ctx, work)
		in.claimed.Store(false)
		return func() {}
	}
	in.mu.Lock()
	in.start = func(q *queue) {
		go q.renewer.Run(work)
		in.ended.Go(func() { q.run(ctx, work) })
	}
	for _, q := range in.queues {
		in.start(q)
	}
	in.mu.Unlock()
	<-ctx.Done()
	in.mu.Lock()
	in.start = nil
	in.mu.Unlock()
	in.ended.Wait()
	return func() {
		for _, q := range in.all() {
			if q.link != nil {
				q.link.Close(work)
			}
		}
	}
}

// Wait waits until every companion is settled whose last watch has ended.
func (in *Intake) Wait() { in.settling.Wait() }

// ReceiveAlso receives the companions of one more monitor queue, which there was when there were
// more of them. Nothing is written there any more. It does nothing if they are received already.
func (in *Intake) ReceiveAlso(name string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if slices.ContainsFunc(in.queues, func(q *queue) bool { return q.name == name }) {
		return
	}
	in.log.Info("former monitor queue still has companions: they are received too", zap.String("monitor_queue", name))
	q := in.newQueue(name)
	q.former = true
	in.queues = append(in.queues, q)
	if in.start != nil {
		in.start(q)
	}
}

// Unattached returns the monitor queues that the last attempt did not reach; none where companions
// come from a store, once it has answered.
func (in *Intake) Unattached() (names []string) {
	if in.cfg.Store != nil {
		if !in.claimed.Load() {
			names = append(names, in.cfg.Queues[0])
		}
		return names
	}
	for _, q := range in.all() {
		if !q.former && !q.attached.Load() {
			names = append(names, q.name)
		}
	}
	return names
}

func (in *Intake) all() []*queue {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.queues
}

// window bounds the companions that are on their way from one queue: all queues share a tenth of
// maxHeld.
func (in *Intake) window() int { return maxHeld / 10 / len(in.all()) }

// remove forgets a queue that was deleted. Its renewer goes on for what is still in hand.
func (in *Intake) remove(gone *queue) {
	in.mu.Lock()
	defer in.mu.Unlock()
	// A copy: all has returned what was there.
	in.queues = slices.DeleteFunc(slices.Clone(in.queues), func(q *queue) bool { return q == gone })
}

// IsCrowded reports whether so many companions are in hand that those that only wait must make
// room. Otherwise, messages that consumers hold would keep others from being checked.
func (in *Intake) IsCrowded() bool { return in.held.Load() > maxHeld/2 }

// Watching returns how many messages are in hand.
func (in *Intake) Watching() int64 { return in.watching.Load() }

// Yield has the worker give way to the others that receive from the monitor queues, by taking back
// its credit and granting it again: a broker serves first whose credit is the oldest. A store
// serves all alike.
func (in *Intake) Yield() { in.yield.Store(true) }

// take hands a lease to the worker.
func (in *Intake) take(ctx context.Context, l *Lease) {
	in.held.Add(1)
	l.in = in
	in.cfg.Take(ctx, l)
}

// isFull reports whether no more companions are received.
func (in *Intake) isFull() bool {
	return in.held.Load() >= maxHeld || in.watching.Load() >= maxWatched
}

// awaitRoom waits until half of what may be in hand is handled.
func (in *Intake) awaitRoom(ctx context.Context) {
	for ctx.Err() == nil && (in.IsCrowded() || in.watching.Load() > maxWatched/2) {
		select {
		case <-in.eased:
		case <-ctx.Done():
		}
	}
	in.ease() // another queue may wait as well
}

func (in *Intake) ease() {
	select {
	case in.eased <- struct{}{}:
	default:
	}
}
