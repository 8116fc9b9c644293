// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/operations"
	"overdue/internal/servicebus/link"
	"overdue/internal/servicebus/sdk"
)

// slot is the grain of due times. Deadlines of one entity in one slot share a
// companion, which becomes due at the slot's end: so a companion may ring up to one
// slot after the deadline and never before it.
const slot = 20 * time.Millisecond

// groupSize bounds the references of one companion that the scheduler composes: a
// pass over a companion holds its lock, so it should stay short.
const groupSize = 100

// Config holds the settings of a Scheduler. The zero value of all but Client and
// MonitorQueue is sensible.
type Config struct {
	Client       *sdk.Client
	MonitorQueue string
	WriteTimeout time.Duration // of one transfer, retries included; 0 = 30 s

	// Store keeps companions and notes in the place of the monitor queue, which only tells the broker's clock then. nil:
	// the monitor queue does.
	Store Store

	// Written is told of every transfer: n companions, and how it ended. May be nil.
	Written func(n int, err error)

	// Index makes that companions of messages which were settled in time are not looked at. nil: all are.
	Index Index
	// Links lead to the monitor queue: for finding companions there that are to be cancelled, and for writing them with
	// less effort than the SDK. nil: none is cancelled, and the SDK writes all.
	Links *link.Namespace
	// Direct is told when companions begin to go past the SDK over Links, with nil, and when that way fails, so that the SDK
	// writes them with more effort: once for each change, one after the other. May be nil.
	Direct func(err error)
	// Cancelled is told of every round of RunCancel: n companions, and what ended it. May be nil.
	Cancelled func(n int, err error)

	Companions Companions            // "" = auto
	Operations *operations.Counter   // nil: they are not counted
	Deadlines  *operations.Deadlines // nil: those that are met early are not counted
}

// A Scheduler writes companions to the monitor queue. It is safe for concurrent use.
type Scheduler struct {
	cfg    Config
	sender *sdk.Sender // for the monitor queue
	clock  clock

	measured     chan struct{} // closed when the clock is
	blurred      chan struct{} // one token: see Blurred
	onceMeasured sync.Once

	mu      sync.Mutex
	pending []*ticket // what waits for the transfer in flight to end
	flying  bool
	closed  bool
	flights sync.WaitGroup

	direct   direct
	covers   covers
	needless chan struct{} // one token: Index.Needless may have something to tell
	probes   probes
	slotted  slotted
}

// ticket is one caller's companion on its way to the monitor queue.
type ticket struct {
	c      Companion
	told   interface{ Scheduled(err error) } // what is called when err is final; nil: done is closed
	done   chan struct{}
	err    error // the first one; ONLY written by the flight, MUST only be read after done is closed
	groups int   // companions that it still waits for; the flight's own
}

// New makes a Scheduler. It opens no link yet: the first companion does.
func New(cfg Config) (*Scheduler, error) {
	if cfg.Client == nil || cfg.MonitorQueue == "" {
		return nil, errors.New("scheduler: a client and the name of the monitor queue are needed")
	}
	if cfg.WriteTimeout == 0 {
		cfg.WriteTimeout = 30 * time.Second
	}
	if cfg.Store != nil && cfg.Links == nil {
		return nil, errors.New("scheduler: links are needed for the broker's clock where a store keeps companions")
	}
	return &Scheduler{
		cfg: cfg, sender: cfg.Client.NewSender(cfg.MonitorQueue), needless: make(chan struct{}, 1), measured: make(chan struct{}),
		blurred: make(chan struct{}, 1),
	}, nil
}

// Schedule returns when the broker has accepted a companion for c, or with the error
// that kept it from doing so. References whose deadlines fall into one slot may share
// a companion with those of other callers, unless c.Due is set. When ctx ends
// first the companion may still be written, which costs one needless look.
func (s *Scheduler) Schedule(ctx context.Context, c Companion) error {
	return s.Begin(c)(ctx)
}

// Begin is Schedule for who has other things to do meanwhile: it hands c over without
// blocking, and wait returns what Schedule would. wait need not be called; it may be called
// more than once, from any goroutine.
func (s *Scheduler) Begin(c Companion) (wait func(context.Context) error) {
	return s.enter(ticketFor(c)).wait
}

// Start is Begin for who would rather be called than wait: a is told once what wait would return, from a
// goroutine that it must not hold up, or before Start returns.
func (s *Scheduler) Start(c Companion, a interface{ Scheduled(err error) }) {
	t := &ticket{c: c, told: a}
	if t.asks() {
		s.enter(t)
	} else {
		t.finish()
	}
}

// ticketFor is a ticket for c. One that asks for nothing is done already.
func ticketFor(c Companion) *ticket {
	t := &ticket{c: c, done: make(chan struct{})}
	if !t.asks() {
		t.finish()
	}
	return t
}

// asks reports whether there is anything to ask for.
func (t *ticket) asks() bool {
	if t.c.Kind == "" {
		t.c.Kind = KindEach
	}
	return t.c.Kind != KindEach || len(t.c.References) > 0
}

// finish tells the caller that err is final.
func (t *ticket) finish() {
	if t.told != nil {
		t.told.Scheduled(t.err)
	} else {
		close(t.done)
	}
}

// enter lets t leave with the next transfer, unless it is done, or slots stand for it.
func (s *Scheduler) enter(t *ticket) *ticket {
	if t.c.Findable && !t.over() {
		s.cover(t)
		return t
	}
	if !t.over() && !s.takeIn(t) {
		t.err = fmt.Errorf("scheduler: schedule companion for %s: %w", t.c.Entity, ErrClosed)
		t.finish()
	}
	return t
}

// takeIn reports false when the scheduler is closed.
func (s *Scheduler) takeIn(t *ticket) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.pending = append(s.pending, t)
	s.takeOffLocked()
	return true
}

// over reports whether t is done.
func (t *ticket) over() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// wait returns how the ticket's companions fared.
func (t *ticket) wait(ctx context.Context) error {
	select {
	case <-t.done:
		return t.err
	case <-ctx.Done():
		return fmt.Errorf("scheduler: schedule companion for %s: %w", t.c.Entity, context.Cause(ctx))
	}
}

// ErrClosed says that Close has been called.
var ErrClosed = errors.New("scheduler is closed")

// takeOffLocked sends what is pending, unless a transfer is in flight: then it leaves
// together with whatever else comes until that one ends.
func (s *Scheduler) takeOffLocked() {
	if len(s.pending) == 0 || s.flying {
		return
	}
	s.flying = true
	s.flights.Add(1)
	go s.fly()
}

// fly writes the companions of what is pending, then of what came meanwhile, until nothing has.
func (s *Scheduler) fly() {
	defer s.flights.Done()
	var enc encoder
	for {
		s.mu.Lock()
		tickets := s.pending
		s.pending = nil
		s.flying = len(tickets) > 0
		s.mu.Unlock()
		if len(tickets) == 0 {
			return
		}
		s.write(&enc, compose(tickets))
	}
}

// write sends the groups in as few transfers as their sizes allow.
func (s *Scheduler) write(enc *encoder, groups []*group) {
	for len(groups) > 0 {
		n, err := s.transfer(enc, groups)
		if s.cfg.Written != nil {
			s.cfg.Written(n, err)
		}
		if s.cfg.Store == nil {
			s.cfg.Operations.Add(operations.Schedule, n)
		}
		for _, g := range groups[:n] {
			g.settle(err)
		}
		if err == nil {
			s.carried(groups[:n])
		}
		groups = groups[n:]
	}
}

// aloneSize is how many bytes the body of a companion may have that goes alone: so few that every queue takes
// them. It needs no batch then, which would ask the link how much it takes and be a message around the message.
const aloneSize = 32 << 10

// transfer sends the first n groups, n ≥ 1, as one transfer.
func (s *Scheduler) transfer(enc *encoder, groups []*group) (n int, err error) {
	if s.cfg.Store != nil {
		return s.put(enc, groups)
	}
	began := time.Now()
	if s.writeDirect(began, enc, groups) {
		return len(groups), nil
	}
	// The callers' contexts do not reach the transfer: one caller that gives up must not
	// take the others' companions with it.
	ctx, cancel := context.WithDeadline(context.Background(), began.Add(s.cfg.WriteTimeout))
	defer cancel()
	err = s.sender.Do(ctx, func(ctx context.Context, sender *azservicebus.Sender) error {
		n, err = s.transferOver(ctx, sender, enc, groups)
		return err
	})
	if n == 0 {
		n = 1 // there is no sender: the scheduler is closed, or the client
	}
	return n, err
}

// transferOver is transfer over one link.
func (s *Scheduler) transferOver(ctx context.Context, sender *azservicebus.Sender, enc *encoder, groups []*group) (n int, err error) {
	if len(groups) == 1 {
		m, err := message(enc, groups[0])
		if err != nil {
			return 1, err
		}
		if len(m.Body) <= aloneSize {
			if err := sender.SendMessage(ctx, m, nil); err != nil {
				return 1, fmt.Errorf("scheduler: write to monitor queue %s: %w", s.cfg.MonitorQueue, err)
			}
			return 1, nil
		}
	}
	batch, err := sender.NewMessageBatch(ctx, nil)
	if err != nil {
		return len(groups), fmt.Errorf("scheduler: reach monitor queue %s: %w", s.cfg.MonitorQueue, err)
	}
	for n < len(groups) {
		m, err := message(enc, groups[n])
		if err != nil {
			if n > 0 {
				break // the ones before it leave now, then its error is told alone
			}
			return 1, err
		}
		err = batch.AddMessage(m, nil)
		if errors.Is(err, azservicebus.ErrMessageTooLarge) && n > 0 {
			break
		}
		if err != nil {
			return 1, fmt.Errorf("scheduler: companion for %s: %w", groups[n].c.Entity, err)
		}
		n++
	}
	if err := sender.SendMessageBatch(ctx, batch, nil); err != nil {
		return n, fmt.Errorf("scheduler: write to monitor queue %s: %w", s.cfg.MonitorQueue, err)
	}
	return n, nil
}

// message is the companion as the monitor queue gets it. Its body is e's, until its next use.
func message(e *encoder, g *group) (*azservicebus.Message, error) {
	body, id, err := g.marshal(e)
	if err != nil {
		return nil, err
	}
	c := &g.c
	return &azservicebus.Message{
		Body:                 body,
		MessageID:            &id,
		ContentType:          to.Ptr(ContentType),
		Subject:              to.Ptr(string(c.Kind)),
		ScheduledEnqueueTime: to.Ptr(c.Due.UTC()),
	}, nil
}

// marshal is the group's companion, see [Companion.marshal], whose id it keeps.
func (g *group) marshal(e *encoder) (body []byte, id string, err error) {
	if body, id, err = g.c.marshal(e); err == nil {
		g.id, _ = parseCompanionID(id) // it has just been made
	}
	return body, id, err
}

// Close refuses new companions, waits for those in flight and closes the link.
func (s *Scheduler) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.finishDirect()
	if err := waitFor(ctx, &s.flights); err != nil {
		return fmt.Errorf("scheduler: companions still in flight: %w", err)
	}
	s.closeDirect(ctx)
	return s.sender.Close(ctx)
}
