// SPDX-License-Identifier: Apache-2.0

// Package intake receives companions from the monitor queues, or claims them from a store. It keeps
// each one under its lock while its messages are checked, and settles it when the last of them is
// handled.
package intake

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"overdue/internal/operations"
	"overdue/internal/servicebus/link"
	"overdue/scheduler"

	"go.uber.org/zap"
)

const (
	// maxHeld bounds the companions in hand. The others stay on the monitor queue.
	maxHeld = 5000
	// maxWatched bounds the messages in hand: those that are checked, and those whose events wait
	// for their sinks. Beyond it, a worker receives no companion until there are half as many.
	maxWatched = 250_000
	// creditWindow bounds the companions that are on their way to the worker, of all queues.
	creditWindow = 500
	// yieldEvery is the least interval at which a worker gives way.
	yieldEvery = time.Second
)

// A Clock is what is known of the clock of the broker.
type Clock interface {
	Observe(stamp time.Time) // that the broker has just made
	Now() time.Time          // is never ahead
	Latest() time.Time       // is closer, and may be ahead by the error of a measurement
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
	Operations  *operations.Counter
	Log         *zap.Logger
}

// An Intake receives the companions of one worker.
type Intake struct {
	cfg      Config
	log      *zap.Logger
	room     chan struct{} // one token for each lease in hand
	watching atomic.Int64  // messages in hand
	eased    chan struct{} // one token: there are no more than maxWatched/2
	yield    atomic.Bool   // Yield was called
	yielded  time.Time     // when the worker last gave way; used by the goroutine of the first queue only
	claimed  atomic.Bool   // the store has answered
	hand     hand
	settling sync.WaitGroup

	mu     sync.Mutex
	queues []*queue
	start  func(*queue) // nil when none may start: before Run, and when it ends
	ended  sync.WaitGroup
}

// New makes an Intake. Run starts it.
func New(cfg Config) *Intake {
	in := &Intake{cfg: cfg, log: cfg.Log, room: make(chan struct{}, maxHeld), eased: make(chan struct{}, 1)}
	for _, name := range cfg.Queues {
		in.queues = append(in.queues, in.newQueue(name))
	}
	return in
}

// Run receives companions until ctx ends. What it has received stays locked, and can be settled,
// until the caller calls release.
func (in *Intake) Run(ctx, work context.Context) (release func()) {
	if in.cfg.Store != nil {
		in.claim(ctx, work)
		in.claimed.Store(false)
		return func() {}
	}
	renewing, stopRenewing := context.WithCancel(work)
	var renewers sync.WaitGroup
	in.mu.Lock()
	in.start = func(q *queue) {
		renewers.Go(func() { q.renewer.Run(renewing) })
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
			if q.last != nil {
				q.last.Close(work)
			}
		}
		stopRenewing()
		renewers.Wait()
	}
}

// Wait waits until every companion is settled whose last watch has ended.
func (in *Intake) Wait() { in.settling.Wait() }

// ReceiveAlso receives the companions of one more monitor queue, which there was when there were
// more of them. Nothing is written there any more. It does nothing if they are received already.
func (in *Intake) ReceiveAlso(name string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, q := range in.queues {
		if q.name == name {
			return
		}
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

// window is the share of one queue in creditWindow.
func (in *Intake) window() int { return creditWindow / len(in.all()) }

// remove forgets a queue that was deleted. Its renewer goes on for what is still in hand.
func (in *Intake) remove(gone *queue) {
	in.mu.Lock()
	defer in.mu.Unlock()
	var left []*queue // and not in place: all() returns what was there
	for _, q := range in.queues {
		if q != gone {
			left = append(left, q)
		}
	}
	in.queues = left
}

// IsCrowded reports whether so many companions are in hand that those that only wait must make
// room. Otherwise, messages that consumers hold would keep others from being checked.
func (in *Intake) IsCrowded() bool { return len(in.room) > maxHeld/2+creditWindow }

// Watching returns how many messages are in hand.
func (in *Intake) Watching() int64 { return in.watching.Load() }

// Yield has the worker give way to the others that receive from the monitor queues, by taking back
// its credit and granting it again: a broker serves first whose credit is the oldest.
func (in *Intake) Yield() { in.yield.Store(true) }

// yields reports whether it is time to give way.
func (in *Intake) yields() bool {
	if !in.yield.Load() || time.Since(in.yielded) < yieldEvery {
		return false
	}
	in.yield.Store(false)
	in.yielded = time.Now()
	return true
}

// awaitEase waits while too many messages are in hand. The others stay on the monitor queue, where
// any worker can receive them.
func (in *Intake) awaitEase(ctx context.Context) {
	for in.watching.Load() > maxWatched && ctx.Err() == nil {
		in.log.Debug("no companions are received while events wait for their sinks")
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

// takeRoom reserves room for up to n leases. With wait it waits for at least one.
func (in *Intake) takeRoom(ctx context.Context, n int, wait bool) (taken int, err error) {
	if wait {
		select {
		case in.room <- struct{}{}:
			taken++
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
	for taken < n {
		select {
		case in.room <- struct{}{}:
			taken++
		default:
			return taken, nil
		}
	}
	return taken, nil
}

// leaveRoom gives up room for n leases.
func (in *Intake) leaveRoom(n int) {
	for range n {
		<-in.room
	}
}
