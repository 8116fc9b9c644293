// SPDX-License-Identifier: Apache-2.0

// Package lifecycle starts the components of a process in order and stops them in reverse, each by
// name and in bounded time.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.uber.org/zap"
)

// State is where a process stands between its start and its end.
type State string

// The states, in their order.
const (
	StateStarting State = "starting"
	StateServing  State = "serving"
	StateDraining State = "draining"
	StateStopped  State = "stopped"
)

// A Lifecycle starts components in order and stops them in reverse, each by name.
//
//	starting ─▶ serving ─▶ draining ─▶ stopped
//	    └────────────────────▲
//
// A drain first leaves apps their Delays, then stops the components.
type Lifecycle struct {
	log     *zap.Logger
	timeout time.Duration // of the stop of all components
	Delays  Delays        // MUST only be written before drain may be called

	Failed   chan error    // the first component that ended by itself
	Stopping chan struct{} // closed when the delays are over and the components are being stopped
	drained  chan struct{} // closed when drain is done
	hurried  context.Context
	Hurry    context.CancelFunc // cuts the delays short, also those that have not begun

	mu      sync.Mutex
	state   State
	waiting func() string // what the delays wait for, while they do
	steps   []step
	err     error // of drain; MUST only be read after drained is closed
}

// stopGrace is what a stop gets to return once its time is over.
const stopGrace = 100 * time.Millisecond

// CloseTimeout is what the close of a connection may take.
const CloseTimeout = time.Second

// step is a component that has been started.
type step struct {
	name string
	stop func(context.Context) error
}

// New makes a Lifecycle whose stop takes as long as timeout at most.
func New(log *zap.Logger, timeout time.Duration) *Lifecycle {
	l := &Lifecycle{
		log: log, timeout: timeout, state: StateStarting,
		Failed: make(chan error, 1), Stopping: make(chan struct{}), drained: make(chan struct{}),
	}
	l.hurried, l.Hurry = context.WithCancel(context.Background())
	return l
}

// Started registers how a component is stopped. It is called right after the component's start, so
// that a start which fails later on finds it. stop may be called when the component has
// already ended, and should return when its context ends.
func (l *Lifecycle) Started(name string, stop func(context.Context) error) {
	l.mu.Lock()
	l.steps = append(l.steps, step{name, stop})
	l.mu.Unlock()
	l.log.Debug("component started", zap.String("component", name))
}

// Links registers the close of something that holds links to the namespace. What went
// over them has been answered by then, so a namespace that is gone, or that
// hangs up in the middle of the goodbyes, is no failure. Running out of time is one.
func (l *Lifecycle) Links(name string, closeLinks func(context.Context) error) {
	l.Started(name, func(ctx context.Context) error {
		err := closeLinks(ctx)
		if err != nil && ctx.Err() == nil {
			l.log.Info("links not closed cleanly", zap.String("component", name), zap.Error(err))
			return nil
		}
		return err
	})
}

// Connection registers the close of a connection, of which nothing depends any more when
// its turn comes. It gets a moment, and what comes of it is only worth a line.
func (l *Lifecycle) Connection(name string, closeConnection func(context.Context) error) {
	l.Started(name, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, CloseTimeout)
		defer cancel()
		if err := Bounded(ctx, closeConnection); err != nil {
			l.log.Info("connection not closed cleanly", zap.String("component", name), zap.Error(err))
		}
		return nil
	})
}

// Run runs a component that blocks until its stop is called, and registers the stop. A component
// that ends before that fails the process, with or without an error.
func (l *Lifecycle) Run(name string, run func() error, stop func(context.Context) error) {
	var stopping atomic.Bool
	var err error // written before done is closed; nil when it has been reported
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err = run(); !stopping.Load() && l.Fail(name, err) {
			err = nil
		}
	}()
	l.Started(name, func(ctx context.Context) error {
		stopping.Store(true)
		stopErr := stop(ctx)
		select {
		case <-done:
			return errors.Join(stopErr, err)
		case <-ctx.Done():
			return errors.Join(stopErr, context.Cause(ctx))
		}
	})
}

// Background is a component that ends when its context does.
func (l *Lifecycle) Background(name string, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	l.Run(name, func() error { return run(ctx) }, func(context.Context) error {
		cancel()
		return nil
	})
}

// Fail reports a component that ended by itself, and whether that is the reason for the end of the
// process.
func (l *Lifecycle) Fail(name string, err error) (first bool) {
	if err == nil {
		err = errors.New("it ended for no stated reason")
	}
	select {
	case l.Failed <- fmt.Errorf("%s: %w", name, err):
		return true
	default: // the first failure is the reason; the others follow from it
		return false
	}
}

// Serving says that every component has been started.
func (l *Lifecycle) Serving() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == StateStarting {
		l.state = StateServing
	}
}

// State returns where the process stands.
func (l *Lifecycle) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

// WaitsFor says what a process that drains waits for; "" = for its components, or it does not
// drain.
func (l *Lifecycle) WaitsFor() string {
	l.mu.Lock()
	waiting := l.waiting
	l.mu.Unlock()
	if waiting == nil {
		return ""
	}
	return waiting() // without the lock: it counts connections
}

func (l *Lifecycle) waits(what func() string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = what
	if what != nil {
		l.log.Info("draining", zap.String("state", what()))
	}
}

// Bounded gives a stop up when its time is over. The SDK's Close, for one, waits for a
// dial of another goroutine whatever its context says; it ends when that does.
func Bounded(ctx context.Context, stop func(context.Context) error) error {
	ended := make(chan error, 1)
	go func() { ended <- stop(ctx) }()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		select {
		case err = <-ended: // it may know better what is not done
		case <-time.After(stopGrace):
			err = ctx.Err()
		}
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return context.Cause(ctx) // the same in better words
	}
	return err
}

// Drain waits for the Delays, stops all components, the last one first, and returns their
// errors. A second call waits for the first.
func (l *Lifecycle) Drain() error {
	l.mu.Lock()
	if l.state == StateDraining || l.state == StateStopped {
		l.mu.Unlock()
		<-l.drained
		return l.err
	}
	l.state = StateDraining
	l.mu.Unlock()
	l.Delays.linger(l.hurried, l.waits)
	l.waits(nil)
	close(l.Stopping)
	l.mu.Lock()
	steps := slices.Clone(l.steps)
	l.mu.Unlock()

	deadline := time.Now().Add(l.timeout)
	var errs []error
	for i, s := range slices.Backward(steps) {
		// Every component may use half of the remaining time, so that one which hangs leaves time to
		// those that come after. The first ones are those with work in hand.
		bound := time.Until(deadline)
		if i > 0 {
			bound /= 2
		}
		began := time.Now()
		ctx, cancel := context.WithTimeoutCause(context.Background(), bound,
			fmt.Errorf("not done within %s", bound.Round(time.Millisecond)))
		err := Bounded(ctx, s.stop)
		cancel()
		if err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", s.name, err))
		}
		l.log.Debug("component stopped", zap.String("component", s.name), zap.Duration("took", time.Since(began)), zap.Error(err))
	}
	l.err = errors.Join(errs...)
	l.mu.Lock()
	l.state = StateStopped
	l.mu.Unlock()
	close(l.drained)
	return l.err
}

// Wait waits for wg, or returns the cause of ctx when ctx ends. Its goroutine then stays until wg
// is done.
func Wait(ctx context.Context, wg *sync.WaitGroup) error {
	ended := make(chan struct{})
	go func() {
		wg.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Apps are the clients that are connected to the endpoints.
type Apps interface {
	// Drain lets no more connections in, and returns when the last one is closed or ctx ends.
	Drain(context.Context) error
	Connections() int
}

// Delays leave apps time between the request to stop and the stop. In that time nothing changes for
// them, except that after Min no new connection is accepted.
type Delays struct {
	Min, Max time.Duration // since the request; Max is not below Min, or 0
	Apps     Apps          // nil = there are no endpoints, and nothing to wait for
}

// linger waits until the delays are over. It calls said with what it waits for.
func (f *Delays) linger(hurry context.Context, said func(func() string)) {
	if f.Apps == nil {
		return
	}
	began := time.Now()
	left := func(d time.Duration) time.Duration { return max(0, d-time.Since(began)).Round(100 * time.Millisecond) }
	if f.Min > 0 {
		said(func() string { return fmt.Sprintf("the endpoints stay open for %s more", left(f.Min)) })
		select {
		case <-time.After(f.Min):
		case <-hurry.Done():
			return
		}
	}
	if f.Max > f.Min && hurry.Err() == nil {
		if f.Apps.Connections() > 0 {
			said(func() string {
				return fmt.Sprintf("waits for the connections of apps (%d), for %s at most", f.Apps.Connections(), left(f.Max))
			})
		}
		ctx, cancel := context.WithTimeout(hurry, f.Max-f.Min)
		defer cancel()
		_ = f.Apps.Drain(ctx) // apps that are still connected have had the time
	}
}

// ErrTerminated is the cause of a context that SIGTERM has ended: the one way to ask for an end
// that leaves time. A user who types Ctrl-C does not want to wait.
var ErrTerminated = errors.New("SIGTERM")

// UntilSignal is a context that ends with the first SIGINT or SIGTERM. The second one has its usual
// effect: the end. During a drain, the process takes the second one to cut the drain short.
func UntilSignal() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		s := <-signals
		signal.Stop(signals)
		if s == syscall.SIGTERM {
			cancel(ErrTerminated)
			return
		}
		cancel(fmt.Errorf("signal: %s", s))
	}()
	return ctx
}
