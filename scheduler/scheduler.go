// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"overdue/internal/lifecycle"
	"overdue/internal/monitorqueue"
	"overdue/internal/operations"
	"overdue/internal/redisstore"
	"overdue/internal/servicebus/link"
	"overdue/scheduler/index"
)

const (
	// slot is the grain of due times. Deadlines of one entity in one slot share a companion. It becomes
	// due slotLead before the slot begins, so that the monitor checks before any of the deadlines. A
	// message that is gone by then was received in time, for certain. Any other one is expired at the
	// instant of its deadline.
	slot     = 100 * time.Millisecond
	slotLead = 200 * time.Millisecond
	// A deadline that follows its send within shortLife has no time for that. Its companion becomes
	// due at the deadline or up to shortSlot later, and never before it.
	shortLife = time.Second
	shortSlot = 20 * time.Millisecond
)

// groupSize bounds the references of one companion, and the times to live of a slot. More would let
// a few companions fill the memory of a monitor, and each of them stay there for long.
const groupSize = 100

// Config holds the settings of a Scheduler. The zero value of all but Links and MonitorQueue is
// sensible.
type Config struct {
	Links        *link.Namespace // leads to the monitor queue
	MonitorQueue string
	// MonitorQueues is how many monitor queues there are, of which MonitorQueue is the first: see
	// package monitorqueue. 0 = 1.
	MonitorQueues int

	// Store keeps companions and notes in the place of the monitor queue, which only shows the
	// broker's clock then. nil: the monitor queue does.
	Store store

	// Written is called after every transfer, with n companions and how it ended. Calls may overlap.
	// May be nil.
	Written func(n int, err error)

	// Cancelled is called after every round of RunCancel, with n companions and what ended it. May
	// be nil.
	Cancelled func(n int, err error)

	// Companions is the kind that is written: "each" names every message, "slot" stands for many
	// wherever that is possible, and "auto", as "", where it costs less.
	Companions string
	Operations *operations.Counter   // nil: they are not counted
	Deadlines  *operations.Deadlines // nil: those that are met early are not counted
}

// A store keeps companions until they are due where the monitor queue cannot: its tier has no
// scheduled messages.
type store interface {
	// Put returns when all items are kept, or with why they may not be. An item that is kept under an
	// id already stays as it is.
	Put(ctx context.Context, items []redisstore.Item) error
	// Withdraw forgets companions that nobody has claimed, and returns the ids of those it
	// has found.
	Withdraw(ctx context.Context, ids []string) (withdrawn []string, err error)
}

// A Scheduler writes companions to the monitor queues. It is safe for concurrent use.
type Scheduler struct {
	*clock      // of the broker
	cfg         Config
	queues      monitorqueue.Queues
	lanes       []*lane // one for each of queues; the first has notes, and tells the broker's clock
	index       *index.Index
	settlements index.Settlements
	slots       slotRegistry

	mu      sync.Mutex // also of the lanes
	closed  bool
	running sync.WaitGroup // goroutines that write
}

// A lane is the way to one monitor queue.
type lane struct {
	queue      string
	companions *link.ReconnectingSender
	position   atomic.Int64 // where RunCancel has not read the queue yet; 0 = from its beginning

	// The rest is under the mutex of the scheduler.
	pending  []*ticket // leave with the next transfer
	inFlight int       // transfers
	lastDue  time.Time // see LastDue
}

func (s *Scheduler) laneOf(entity string) *lane { return s.lanes[s.queues.Index(entity)] }

// manage calls do with the $management node of a monitor queue.
func (s *Scheduler) manage(ctx context.Context, l *lane, do func(*link.Peeker) error) error {
	node, err := s.cfg.Links.Peeker(ctx, l.queue)
	if err != nil {
		return err
	}
	defer node.Close(context.WithoutCancel(ctx))
	return do(node)
}

// ticket is one caller's companion, or note, on its way to the monitor queue.
type ticket struct {
	c      Companion
	note   *Note
	caller interface{ Scheduled(err error) } // what is called when err is final

	open atomic.Int32          // companions and slots that it waits for
	err  atomic.Pointer[error] // the first one
}

// end notes how one of the things ended that the ticket waits for, and calls the caller after the
// last.
func (t *ticket) end(err error) {
	if err != nil {
		first := err // a copy, so that a success allocates nothing
		t.err.CompareAndSwap(nil, &first)
	}
	if t.open.Add(-1) > 0 {
		return
	}
	if first := t.err.Load(); first != nil {
		err = *first
	}
	t.caller.Scheduled(err)
}

// New makes a Scheduler. It opens no link yet: the first companion does.
func New(cfg Config) (*Scheduler, error) {
	if cfg.Links == nil || cfg.MonitorQueue == "" {
		return nil, errors.New("scheduler: links and the name of the monitor queue are needed")
	}
	switch cfg.Companions {
	case "", companionsAuto, companionsEach, companionsSlot:
	default:
		return nil, fmt.Errorf("scheduler: companions %q, want auto, each or slot", cfg.Companions)
	}
	if cfg.Store != nil {
		cfg.MonitorQueues = 1 // which only tells the broker's clock
	}
	s := &Scheduler{
		clock:  newClock(),
		cfg:    cfg,
		queues: monitorqueue.Of(cfg.MonitorQueue, cfg.MonitorQueues),
		index:  index.New(index.References),
	}
	for _, name := range s.queues.Names() {
		s.lanes = append(s.lanes, &lane{
			queue:      name,
			companions: cfg.Links.ReconnectingSender(name),
		})
	}
	return s, nil
}

// Schedule returns when the broker has accepted a companion for c, or with the error
// that kept it from doing so. References whose deadlines fall into one slot may share
// a companion with those of other callers; with c.Due, only where they are due in the same second.
// When ctx ends first the companion may still be written, which costs one needless check.
func (s *Scheduler) Schedule(ctx context.Context, c Companion) error {
	return s.Begin(c)(ctx)
}

// ScheduleTTL is Schedule for a message that is sent next, with this time to live.
func (s *Scheduler) ScheduleTTL(ctx context.Context, entity, messageID string, ttl time.Duration) error {
	now := s.Now().Time
	return s.Schedule(ctx, Companion{
		Entity: entity,
		References: []Reference{{
			MessageID: messageID,
			Sent:      now,
			Deadline:  now.Add(ttl),
			Within:    ttl,
			Stated:    "ttl",
		}},
	})
}

// Begin is Schedule in two steps: it passes c on without
// blocking, and wait returns what Schedule would. wait need not be called; it may be called
// more than once, from any goroutine.
func (s *Scheduler) Begin(c Companion) (wait func(context.Context) error) {
	r := &result{done: make(chan struct{})}
	s.Start(c, r)
	return r.wait
}

// A result is what became of a companion or a note.
type result struct {
	done chan struct{} // closed when err is final
	err  error
}

func (r *result) wait(ctx context.Context) error {
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return fmt.Errorf("scheduler: wait for a transfer: %w", context.Cause(ctx))
	}
}

// Scheduled ends the wait for the result.
func (r *result) Scheduled(err error) {
	r.err = err
	close(r.done)
}

// Start is like Begin, but calls a.Scheduled once with what wait would return, from a
// goroutine that it must not hold up, or before Start returns.
func (s *Scheduler) Start(c Companion, a interface{ Scheduled(err error) }) {
	t := &ticket{c: c, caller: a}
	switch {
	case !c.IsSlot() && len(c.References) == 0: // it asks for nothing
		a.Scheduled(nil)
	case c.Findable:
		s.enterSlots(t)
	default:
		s.takeIn(s.laneOf(c.Entity), t)
	}
}

// takeIn has the ticket leave with the next transfer to a monitor queue.
func (s *Scheduler) takeIn(l *lane, t *ticket) {
	s.mu.Lock()
	closed := s.closed
	if !closed {
		l.pending = append(l.pending, t)
		s.startLocked(l)
	}
	s.mu.Unlock()
	if closed {
		t.caller.Scheduled(ErrClosed)
	}
}

// A Note is something else than a companion that has to be there at its time, whatever becomes of
// this process. The monitor passes it to the component that registered its content type. Its ID is
// that of no other note; "" = derived from the body and the due time.
type Note = redisstore.Item

// Keep returns when the first monitor queue, or the companion store, has accepted n, or with the
// error that kept it from doing so.
func (s *Scheduler) Keep(ctx context.Context, n Note) error {
	if n.ID == "" {
		n.ID = deriveID(n.Body, n.Due.UnixNano()).String()
	}
	r := &result{done: make(chan struct{})}
	s.takeIn(s.lanes[0], &ticket{note: &n, caller: r})
	return r.wait(ctx)
}

// ErrClosed says that Close has been called.
var ErrClosed = errors.New("scheduler: it is closed")

// Close refuses new companions, waits for those in flight and closes the links.
func (s *Scheduler) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	err := lifecycle.Wait(ctx, &s.running)
	if err != nil {
		err = fmt.Errorf("scheduler: companions still in flight: %w", err)
	}
	for _, l := range s.lanes {
		err = errors.Join(err, l.companions.Close(ctx))
	}
	return err
}
