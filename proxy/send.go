// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"overdue/scheduler"
)

// A send is some messages on their way to one entity, all of them or none, with the promise of
// their deadlines. An endpoint begins it: wait, prepare and begin, in this order. From then on
// the send moves by [send.step] alone, and holds no goroutine. It ends with one call of
// endpoint.finished.
//
// When it ends without an error, the messages and the companions of those that have a deadline
// are accepted. When it ends with an error, the messages may be in the queue nevertheless: an
// acknowledgement was lost, or the companion failed and the work message did not. Every
// such error is one to retry, so a send is delivered at least once.
type send struct {
	p        *Proxy
	to       endpoint
	via      string // name of the endpoint, in metrics and logs
	entity   string
	settings Settings

	n  int        // messages
	ms []*message // until they are promised
	// unreadable is why there are no messages. Where nothing is monitored that is the broker's
	// business.
	unreadable error
	// complete puts on the messages what was stamped on them. nil: the endpoint does it in transmit.
	complete func() error

	now      scheduler.Instant // read before anything leaves: the broker's stamp cannot be earlier
	promises []promise
	refs     []scheduler.Reference // of the promises; one may stand for several
	slotted  bool                  // slots stand for the messages, instead of references
	// once says that the broker has each message once, stamped by then, when it has accepted them.
	// So their settlement can be distinguished from that of others.
	once bool

	settled        bool // sent settled: the app does not want to hear of failures
	companionFirst bool // the companions go before the messages instead of together with them
	// companionLast makes them go behind, unless they go first: until it is known that the sender
	// may send.
	companionLast bool

	mu        sync.Mutex
	state     state
	scheduled error // what came of the companions
}

// An endpoint is where a send came in, and where its result goes. The methods must not block,
// and may be called from any goroutine.
type endpoint interface {
	// transmit lets the messages go to the broker. The endpoint steps the send on with
	// brokerSettled when it has the outcome.
	transmit()
	// schedulingContext bounds how long the journal waits for the monitor queue.
	schedulingContext() context.Context
	// finished is called with the result, once.
	finished(err error)
}

// wait blocks until it is known what holds for the entity, and until a place among the sends in
// flight is free. A message whose deadline only the entity states must not go unwatched because
// the entity's settings came late. Their wait needs no place, so that one entity without an
// answer holds up no other.
func (s *send) wait(ctx context.Context) error {
	if s.settings.Unknown {
		known, err := s.learn(ctx)
		if err != nil {
			return fmt.Errorf("%w: %w", errUnknown, err)
		}
		s.settings = known
	}
	return s.p.enter(ctx)
}

func (s *send) learn(ctx context.Context) (Settings, error) {
	ctx, cancel := context.WithTimeout(ctx, s.p.cfg.SendTimeout)
	defer cancel()
	return s.p.cfg.Learn(ctx, s.entity)
}

// prepare works out what the messages are promised, has their TTLs stamped, and writes down what
// their companions are to say. It takes no time, so a send needs its place from here on and not
// before.
func (s *send) prepare() error {
	defer func() { s.ms, s.complete = nil, nil }() // what is in flight must not keep payloads in memory
	if err := s.promise(); err != nil {
		return err
	}
	if len(s.promises) == 0 {
		return nil
	}
	if s.complete != nil {
		if err := s.complete(); err != nil {
			return err
		}
	}
	s.refer()
	return nil
}

// begin moves a send on that is prepared and has its place. It reports false when the send has
// ended meanwhile; the place is still the caller's then.
func (s *send) begin() bool { return s.step(s.order(), nil) }

// order says in which order messages and companions go.
func (s *send) order() input {
	switch {
	case len(s.promises) == 0:
		return beginAlone
	case s.companionFirst:
		return beginCompanionFirst
	case s.companionLast:
		return beginCompanionLast
	}
	return beginTogether
}

// step moves the send on and does what is due then. err is how the input turned out. It reports
// false for an input that has no meaning in the send's state: one that comes too late.
func (s *send) step(in input, err error) bool {
	s.mu.Lock()
	from := s.state
	to, due := next(from, in, err != nil)
	if due == ignore {
		s.mu.Unlock()
		return false
	}
	s.state = to
	if in == companionScheduled && err != nil {
		s.scheduled = fmt.Errorf("%w: %w", errCompanion, err)
	}
	scheduled := s.scheduled
	s.mu.Unlock()

	if in == brokerSettled && err == nil {
		s.confirm()
	}
	switch due {
	case transmit:
		s.to.transmit()
	case schedule:
		s.schedule(s.refs)
	case scheduleAndTransmit: // in this order: the message must not be first
		s.schedule(s.refs)
		s.to.transmit()
	case scheduleAgain:
		s.schedule(s.late())
	case finish:
		s.finish(from, in, err, scheduled)
	}
	return true
}

// finish gives the endpoint the result, and gives the place back.
func (s *send) finish(from state, in input, err, scheduled error) {
	switch {
	case in == timeout && from.awaitsCompanions():
		s.p.noteCompanions(errTimeout)
		err = fmt.Errorf("%w: %w", errCompanion, errTimeout)
	case in == timeout:
		err = errTimeout
	case in == connectionEnded:
		err = errConnection
	case err == nil || in == companionScheduled:
		err = scheduled
	}
	s.to.finished(err)
	if from != waiting {
		s.p.leave()
	}
}

// schedule hands companions over. Without references they are accepted at once.
func (s *send) schedule(refs []scheduler.Reference) {
	if len(refs) == 0 {
		s.step(companionScheduled, nil)
		return
	}
	c := scheduler.Companion{Entity: s.entity, References: refs, Findable: s.slotted}
	if s.p.cfg.Journal == nil {
		s.p.cfg.Scheduler.Start(c, s)
		return
	}
	wait, ctx := s.p.cfg.Journal.Begin(c), s.to.schedulingContext()
	go func() { // ends when the monitor queue or the journal has them, or with ctx
		err := wait(ctx)
		if errors.Is(ctx.Err(), context.Canceled) { // the app has left, which says nothing of the monitor queue
			s.step(companionScheduled, err)
			return
		}
		s.Scheduled(err)
	}()
}

// Scheduled is called when companions are accepted, or have failed.
func (s *send) Scheduled(err error) {
	s.p.noteCompanions(err)
	s.step(companionScheduled, err)
}

// noteCompanions remembers what the monitor queue said last.
func (p *Proxy) noteCompanions(err error) {
	if first := err != nil; p.companionFirst.Load() != first { // mostly it is what it was
		p.companionFirst.Store(first)
	}
}

// confirm follows the acceptance of the messages.
func (s *send) confirm() {
	if s.once && !s.slotted {
		s.p.cfg.Scheduler.Confirm(s.entity, s.refs)
	}
}

// count counts how the send ended.
func (s *send) count(err error) {
	promised := 0
	if err == nil {
		promised = len(s.promises)
	}
	s.p.metrics.sent(s.via, s.entity, s.n, promised, err)
}

// countUnwatched counts a send that has gone on although its deadlines could not be promised.
func (s *send) countUnwatched() { s.p.metrics.sent(s.via, s.entity, s.n, 0, nil) }
