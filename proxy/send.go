// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"overdue/internal/lifecycle"
	"overdue/scheduler"
)

// A send carries messages to one entity, all of them or none, together with the promise to watch
// their deadlines. An endpoint begins it by calling wait, prepare and begin, in this order. After
// that only [send.step] moves it, and the send holds no goroutine. It ends with one call of
// endpoint.finished.
//
// When it ends without an error, the broker has accepted the messages and the companions of those
// that have a deadline. When it ends with an error, the messages may be in the queue
// nevertheless: an acknowledgement was lost, or the companion failed and the work message did
// not. Every such error is retryable, so a send is delivered at least once.
type send struct {
	p        *Proxy
	to       endpoint
	via      string // name of the endpoint, in metrics and logs
	entity   string
	settings Settings

	n  int        // messages
	ms []*message // nil once prepare has run
	// unreadable is the error that left ms empty. It matters only in a monitored entity:
	// elsewhere the broker judges the messages.
	unreadable error
	// complete writes the stamped TTLs and given ids into the messages. nil: the endpoint does so
	// in transmit.
	complete func() error

	began    time.Time         // by our clock: the proxy had all of it
	now      scheduler.Instant // read before anything leaves: the broker's stamp cannot be earlier
	promises []promise
	refs     []scheduler.Reference // of the promises; one may stand for several
	slotted  bool                  // the companions are slots, not references
	// once: the broker stores each message exactly once, with a stamp that is no later than its
	// acceptance. So a settlement can be tied to one message.
	once bool

	trace          tracedSend
	settled        bool // sent settled: the app gets no outcome
	companionFirst bool // write the companions before the messages, not together with them
	// companionLast: write the companions after the messages, because the sender has not yet
	// proved its right to send. companionFirst overrides it.
	companionLast bool

	mu        sync.Mutex
	state     state
	left      time.Time // the messages left for the namespace
	scheduled error     // error of the companions, if they failed
}

// An endpoint accepts a send from an app and returns the result to it. The methods must not
// block, and may be called from any goroutine.
type endpoint interface {
	// transmit sends the messages to the broker. The endpoint then steps the send with
	// brokerSettled when it has the outcome.
	transmit()
	// schedulingContext bounds how long the journal waits for the monitor queue.
	schedulingContext() context.Context
	// finished takes the result. It is called once.
	finished(err error)
}

// wait blocks until the entity's settings are known and a place among the sends in flight is
// free. Late settings must not leave a message unwatched whose deadline only the entity states.
// Waiting for settings takes no place, so one entity that does not respond holds up no other.
func (s *send) wait(ctx context.Context) error {
	if s.settings.Unknown {
		learning, cancel := context.WithTimeout(ctx, s.p.cfg.SendTimeout)
		known, err := s.p.cfg.Learn(learning, s.entity)
		cancel()
		if err != nil {
			return fmt.Errorf("%w: %w", errUnknown, err)
		}
		s.settings = known
	}
	return s.p.sends.enter(ctx)
}

// prepare computes the promises, has the TTLs stamped and the ids given, and builds the references
// for the companions. It does not block, so a send takes its place only just before.
func (s *send) prepare() error {
	defer func() { s.ms, s.complete = nil, nil }() // a send in flight must not keep payloads in memory
	if err := s.promise(); err != nil {
		return err
	}
	if len(s.promises) == 0 {
		return nil
	}
	if s.slotted = s.mayUseSlots(); !s.slotted {
		s.giveIDs()
	}
	if s.complete != nil {
		if err := s.complete(); err != nil {
			return err
		}
	}
	s.refer()
	return nil
}

// begin starts a prepared send that has its place. It reports false if the send has already
// ended; the caller then keeps the place.
func (s *send) begin() bool { return s.step(s.order(), nil) }

// order returns the input that sets the order of messages and companions.
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

// step moves the send to its next state and runs the action that is due there. err is the result
// of the input. It reports false when the input comes too late to mean anything in the current
// state.
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
	if due == transmit || due == scheduleAndTransmit {
		s.left = time.Now()
	}
	scheduled, left := s.scheduled, s.left
	s.traceLocked(in, err)
	s.mu.Unlock()

	if in == brokerSettled {
		s.p.metrics.SentUpstream(s.via, len(s.promises) > 0, time.Since(left), s.trace.Context())
		s.report(err)
	}
	switch due {
	case transmit:
		s.to.transmit()
	case schedule:
		s.schedule(s.refs)
	case scheduleAndTransmit: // in this order: the message must not go first
		s.schedule(s.refs)
		s.to.transmit()
	case scheduleAgain:
		s.schedule(s.late())
	case finish:
		s.finish(from, in, err, scheduled)
	}
	return true
}

// finish hands the result to the endpoint and releases the place.
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
	if !s.settled {
		s.p.metrics.Ended(s.via, len(s.promises) > 0, time.Since(s.began), s.trace.Context())
	}
	s.to.finished(err)
	s.trace.End(fault(err, s.entity))
	if from != waiting {
		s.p.sends.leave()
	}
}

// schedule starts writing companions. Without references it is done at once.
func (s *send) schedule(refs []scheduler.Reference) {
	if len(refs) == 0 {
		s.step(companionScheduled, nil)
		return
	}
	s.traceSchedules(len(refs))
	c := scheduler.Companion{Entity: s.entity, References: refs, Findable: s.slotted}
	if s.p.cfg.Journal == nil {
		s.p.cfg.Scheduler.Start(c, s)
		return
	}
	wait, ctx := s.p.cfg.Journal.Begin(c), s.to.schedulingContext()
	go func() { // ends when the monitor queue or the journal has the companions, or with ctx
		err := wait(ctx)
		if errors.Is(ctx.Err(), context.Canceled) { // the app has gone: no verdict on the monitor queue
			s.step(companionScheduled, err)
			return
		}
		s.Scheduled(err)
	}()
}

// Scheduled takes the result of writing the companions.
func (s *send) Scheduled(err error) {
	s.p.noteCompanions(err)
	s.step(companionScheduled, err)
}

// report gives the scheduler the broker's outcome, so that it ties settlements to these messages.
func (s *send) report(err error) {
	switch {
	case err != nil:
		s.p.cfg.Scheduler.Refuse(s.entity, s.refs)
	case s.once && !s.slotted:
		s.p.cfg.Scheduler.Confirm(s.entity, s.refs)
	}
}

// inFlight bounds the sends to monitored entities that have no outcome yet.
type inFlight struct {
	places  chan struct{} // one per send
	timeout time.Duration // of a wait for a place
	queued  atomic.Int64  // sends that wait for one

	mu     sync.Mutex
	closed bool
	all    sync.WaitGroup // MUST only grow under mu while closed is false
}

// enter takes a place, and leave releases it. enter waits until ctx ends or the timeout has passed,
// and then fails with errBusy. After close it fails with errClosed.
func (f *inFlight) enter(ctx context.Context) error {
	if ok, err := f.tryEnter(); ok {
		return err
	}
	f.queued.Add(1)
	defer f.queued.Add(-1)
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	select {
	case f.places <- struct{}{}:
		return f.entered()
	case <-ctx.Done():
		return fmt.Errorf("proxy: %w", errBusy)
	}
}

// tryEnter is like enter, but does not wait. ok is false when no place is free.
func (f *inFlight) tryEnter() (ok bool, err error) {
	select {
	case f.places <- struct{}{}:
		return true, f.entered()
	default:
		return false, nil
	}
}

// entered counts a send that has taken a place. After close it releases the place instead.
func (f *inFlight) entered() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		<-f.places
		return fmt.Errorf("proxy: %w", errClosed)
	}
	f.all.Add(1)
	return nil
}

func (f *inFlight) leave() {
	<-f.places
	f.all.Done()
}

// close refuses new sends, and waits until the others have left or ctx ends.
func (f *inFlight) close(ctx context.Context) error {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	if err := lifecycle.Wait(ctx, &f.all); err != nil {
		return fmt.Errorf("proxy: sends still in flight: %w", err)
	}
	return nil
}

// logAccepted logs, at level debug, n messages that the broker has accepted. companion is the kind
// of their companions, "none" where they have none; refs are the references. A send that fails is
// logged where its error stops.
func (p *Proxy) logAccepted(via, entity string, n int, companion string, refs []scheduler.Reference) {
	ce := p.cfg.Log.Check(zap.DebugLevel, "send accepted")
	if ce == nil {
		return
	}
	fields := []zap.Field{zap.String("work_queue", entity), zap.String("endpoint", via), zap.Int("messages", n), zap.String("companion", companion)}
	if len(refs) > 0 { // the first stands for all: a batch has thousands
		fields = append(fields, zap.Time("deadline", refs[0].Deadline), zap.String("stated", refs[0].Stated))
		if refs[0].MessageID != "" {
			fields = append(fields, zap.String("message_id", refs[0].MessageID))
		}
	}
	ce.Write(fields...)
}

// failure returns what the log says of a send that failed. The first message stands for all.
func (s *send) failure(err error) []zap.Field {
	fields := []zap.Field{zap.String("work_queue", s.entity), zap.String("endpoint", s.via), zap.Int("messages", s.n), zap.Error(err)}
	id := ""
	if len(s.ms) > 0 {
		id = s.ms[0].ID
	} else if len(s.refs) > 0 { // the promises are made
		id = s.refs[0].MessageID
	}
	if id != "" {
		fields = append(fields, zap.String("message_id", id))
	}
	return fields
}

// companionKind names the kind of the companions of a send, for the log.
func (s *send) companionKind() string {
	switch {
	case len(s.promises) == 0:
		return "none"
	case s.slotted:
		return "slot"
	}
	return "each"
}
