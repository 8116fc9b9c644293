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
	Client       *azservicebus.Client
	MonitorQueue string
	WriteTimeout time.Duration // of one transfer, retries included; 0 = 30 s

	// Written is told of every transfer: n companions, and how it ended. May be nil.
	Written func(n int, err error)
}

// A Scheduler writes companions to the monitor queue. It is safe for concurrent use.
type Scheduler struct {
	cfg    Config
	sender *azservicebus.Sender
	clock  clock

	mu      sync.Mutex
	pending []*ticket // what waits for the transfer in flight to end
	flying  bool
	closed  bool
	flights sync.WaitGroup
}

// ticket is one caller's companion on its way to the monitor queue.
type ticket struct {
	c      Companion
	done   chan struct{} // closed when err is final
	err    error         // the first one; ONLY written by the flight, MUST only be read after done is closed
	groups int           // companions that it still waits for; the flight's own
}

// New makes a Scheduler. It opens no link yet: the first companion does.
func New(cfg Config) (*Scheduler, error) {
	if cfg.Client == nil || cfg.MonitorQueue == "" {
		return nil, errors.New("scheduler: a client and the name of the monitor queue are needed")
	}
	if cfg.WriteTimeout == 0 {
		cfg.WriteTimeout = 30 * time.Second
	}
	sender, err := cfg.Client.NewSender(cfg.MonitorQueue, nil)
	if err != nil {
		return nil, fmt.Errorf("scheduler: sender for %s: %w", cfg.MonitorQueue, err)
	}
	return &Scheduler{cfg: cfg, sender: sender}, nil
}

// Schedule returns when the broker has accepted a companion for c, or with the error
// that kept it from doing so. References whose deadlines fall into one slot may share
// a companion with those of other callers, unless c.Due is set. When ctx ends
// first the companion may still be written, which costs one needless look.
func (s *Scheduler) Schedule(ctx context.Context, c Companion) error {
	if c.Kind == "" {
		c.Kind = KindEach
	}
	if c.Kind == KindEach && len(c.References) == 0 {
		return nil
	}
	t := &ticket{c: c, done: make(chan struct{})}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return fmt.Errorf("scheduler: schedule companion for %s: %w", c.Entity, ErrClosed)
	}
	s.pending = append(s.pending, t)
	s.takeOffLocked()
	s.mu.Unlock()
	select {
	case <-t.done:
		return t.err
	case <-ctx.Done():
		return fmt.Errorf("scheduler: schedule companion for %s: %w", c.Entity, context.Cause(ctx))
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
	tickets := s.pending
	s.pending = nil
	s.flying = true
	s.flights.Add(1)
	go s.fly(tickets)
}

// fly writes the companions of tickets, then lets those take off that came meanwhile.
func (s *Scheduler) fly(tickets []*ticket) {
	defer s.flights.Done()
	// The callers' contexts do not reach the transfer: one caller that gives up must not
	// take the others' companions with it.
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.WriteTimeout)
	s.write(ctx, compose(tickets))
	cancel()

	s.mu.Lock()
	s.flying = false
	s.takeOffLocked()
	s.mu.Unlock()
}

// write sends the groups in as few transfers as their sizes allow.
func (s *Scheduler) write(ctx context.Context, groups []*group) {
	for len(groups) > 0 {
		n, err := s.transfer(ctx, groups)
		if s.cfg.Written != nil {
			s.cfg.Written(n, err)
		}
		for _, g := range groups[:n] {
			g.settle(err)
		}
		groups = groups[n:]
	}
}

// transfer sends the first n groups, n ≥ 1, as one transfer.
func (s *Scheduler) transfer(ctx context.Context, groups []*group) (n int, err error) {
	batch, err := s.sender.NewMessageBatch(ctx, nil)
	if err != nil {
		return len(groups), fmt.Errorf("scheduler: reach monitor queue %s: %w", s.cfg.MonitorQueue, err)
	}
	for n < len(groups) {
		m, err := message(&groups[n].c)
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
	if err := s.sender.SendMessageBatch(ctx, batch, nil); err != nil {
		return n, fmt.Errorf("scheduler: write to monitor queue %s: %w", s.cfg.MonitorQueue, err)
	}
	return n, nil
}

// message is the companion as the monitor queue gets it.
func message(c *Companion) (*azservicebus.Message, error) {
	body, id, err := c.marshal()
	if err != nil {
		return nil, err
	}
	return &azservicebus.Message{
		Body:                 body,
		MessageID:            &id,
		ContentType:          to.Ptr(ContentType),
		Subject:              to.Ptr(string(c.Kind)),
		ScheduledEnqueueTime: to.Ptr(c.Due.UTC()),
	}, nil
}

// Close refuses new companions, waits for those in flight and closes the link.
func (s *Scheduler) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	landed := make(chan struct{})
	go func() {
		s.flights.Wait()
		close(landed)
	}()
	select {
	case <-landed:
	case <-ctx.Done():
		return fmt.Errorf("scheduler: companions still in flight: %w", context.Cause(ctx))
	}
	return s.sender.Close(ctx)
}
