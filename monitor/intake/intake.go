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

	"overdue/internal/monitorqueue"
	"overdue/internal/operations"
	"overdue/internal/servicebus/link"
	"overdue/scheduler"

	"go.uber.org/zap"
)

// maxHeld is the number of companions in hand with which a worker asks for no more: their locks are
// renewed, and their settlements are under way together. The others stay on the monitor queue,
// where any worker can receive them.
const maxHeld = 5000

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
	Outstanding func(entity string, n int)          // n more deadlines of an entity are in hand and have no verdict
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
	settling sync.WaitGroup

	mu      sync.Mutex
	sources []*source
	added   chan *source // to be received from
}

// A source has companions: a monitor queue, or the store that stands in for all of them.
type source struct {
	feed
	name      string      // of the monitor queue; for a store, of the first
	former    bool        // it is only emptied: see ReceiveAlso
	attached  atomic.Bool // the last attempt reached it
	mustYield atomic.Bool // see Yield
}

// A feed takes companions from its source.
type feed interface {
	receive(ctx, work context.Context, s *source) error // until it fails, or ctx ends
	renew(work context.Context)                         // has what is in hand stay there, until work ends
}

// New makes an Intake. Run starts it.
func New(cfg Config) *Intake {
	in := &Intake{
		cfg:   cfg,
		log:   cfg.Log,
		eased: make(chan struct{}, 1),
		added: make(chan *source, monitorqueue.Most),
	}
	if cfg.Store != nil {
		in.addLocked(&source{name: cfg.Queues[0], feed: &stored{in, cfg.Store}})
		return in
	}
	for _, name := range cfg.Queues {
		in.addLocked(&source{name: name, feed: in.newQueue(name)})
	}
	return in
}

func (in *Intake) addLocked(s *source) {
	in.sources = append(in.sources, s)
	in.added <- s
}

// Run receives companions until ctx ends. The companions that it has received stay locked until
// work ends, and can be settled until then.
func (in *Intake) Run(ctx, work context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		select {
		case s := <-in.added:
			go s.renew(work)
			running.Go(func() { in.run(ctx, work, s) })
		case <-ctx.Done():
			return
		}
	}
}

// ReconnectEvery is the interval at which a source is tried. With the delay between two dials it is
// well below a second, see TestMissedDeadlinesAfterAnOutage.
const ReconnectEvery = link.RetryInterval

// run receives from s until ctx ends, or a former queue is gone.
func (in *Intake) run(ctx, work context.Context, s *source) {
	log := in.log.With(zap.String("monitor_queue", s.name))
	for isFirst := true; ; isFirst = false {
		err := s.receive(ctx, work, s)
		wasAttached := s.attached.Swap(false)
		switch {
		case ctx.Err() != nil:
			return
		case s.former && link.Condition(err) == link.ConditionNotFound:
			log.Info("former monitor queue is gone", zap.Error(err))
			in.remove(s)
			return
		case wasAttached || isFirst: // once per loss, not per attempt
			log.Warn("companions cannot be received: no deadline is checked", zap.Duration("retry_every", ReconnectEvery), zap.Error(err))
		}
		select {
		case <-time.After(ReconnectEvery):
		case <-ctx.Done():
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
	if slices.ContainsFunc(in.sources, func(s *source) bool { return s.name == name }) {
		return
	}
	in.log.Info("former monitor queue still has companions: they are received too", zap.String("monitor_queue", name))
	in.addLocked(&source{
		name:   name,
		former: true,
		feed:   in.newQueue(name),
	})
}

// Unattached returns the monitor queues that the last attempt did not reach. A store that it did not
// reach counts as the first of them.
func (in *Intake) Unattached() (names []string) {
	for _, s := range in.all() {
		if !s.former && !s.attached.Load() {
			names = append(names, s.name)
		}
	}
	return names
}

func (in *Intake) all() []*source {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.sources
}

// remove forgets a queue that was deleted. Its locks are renewed for what is still in hand.
func (in *Intake) remove(gone *source) {
	in.mu.Lock()
	defer in.mu.Unlock()
	// A copy: all has returned what was there.
	in.sources = slices.DeleteFunc(slices.Clone(in.sources), func(s *source) bool { return s == gone })
}

// Yield has the worker give way to the others that receive from the first monitor queue, where
// digests are. It takes back its credit and grants it again, because a broker serves the oldest
// credit first. A store serves all alike.
func (in *Intake) Yield() { in.all()[0].mustYield.Store(true) }

// Watching returns how many messages are in hand.
func (in *Intake) Watching() int64 { return in.watching.Load() }

// IsCrowded reports whether so many companions are in hand that those that only wait must make
// room. Otherwise, messages that consumers hold would keep others from being checked.
func (in *Intake) IsCrowded() bool { return in.held.Load() > maxHeld/2 }

// isFull reports whether no more companions are asked for.
func (in *Intake) isFull() bool { return in.held.Load() >= maxHeld }

// window bounds the companions that are on their way from one source: all share a tenth of maxHeld.
func (in *Intake) window() int { return maxHeld / 10 / len(in.all()) }

// take hands a lease to the worker.
func (in *Intake) take(ctx context.Context, l *Lease) {
	in.held.Add(1)
	l.in = in
	in.cfg.Take(ctx, l)
}

// awaitRoom waits until more companions may be asked for.
func (in *Intake) awaitRoom(ctx context.Context) {
	for ctx.Err() == nil && in.isFull() {
		select {
		case <-in.eased:
		case <-ctx.Done():
		}
	}
	in.ease() // another source may wait as well
}

func (in *Intake) ease() {
	select {
	case in.eased <- struct{}{}:
	default:
	}
}
