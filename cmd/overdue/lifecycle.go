// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// state is where a process stands between its start and its end.
type state string

const (
	stateStarting state = "starting"
	stateServing  state = "serving"
	stateDraining state = "draining"
	stateStopped  state = "stopped"
)

// A lifecycle starts rooms in order and stops them in reverse, each by name.
//
//	starting ─▶ serving ─▶ draining ─▶ stopped
//	    └────────────────────▲
//
// While it drains, first apps say their farewells, then the rooms are stopped.
type lifecycle struct {
	log      *zap.Logger
	timeout  time.Duration // of the stop of all rooms
	farewell farewell      // MUST only be written before drain may be called

	failed   chan error    // the first room that ended by itself
	stopping chan struct{} // closed when the farewell is over and the rooms are being stopped
	drained  chan struct{} // closed when drain is done
	hurried  context.Context
	hurry    context.CancelFunc // cuts the farewell short, also one that has not begun

	mu      sync.Mutex
	state   state
	waiting func() string // what a farewell waits for, while it does
	steps   []step
	err     error // of drain; MUST only be read after drained is closed
}

// lastWords is what a stop gets to return once its time is over.
const lastWords = 100 * time.Millisecond

// goodbye is what the close of a connection may take.
const goodbye = time.Second

// step is a room that has been started.
type step struct {
	name string
	stop func(context.Context) error
}

func newLifecycle(log *zap.Logger, timeout time.Duration) *lifecycle {
	l := &lifecycle{
		log: log, timeout: timeout, state: stateStarting,
		failed: make(chan error, 1), stopping: make(chan struct{}), drained: make(chan struct{}),
	}
	l.hurried, l.hurry = context.WithCancel(context.Background())
	return l
}

// started registers how a room is stopped. It is called right after the room's start, so
// that a start which fails later on finds it. stop may be called when the room has
// already ended, and should return when its context ends.
func (l *lifecycle) started(name string, stop func(context.Context) error) {
	l.mu.Lock()
	l.steps = append(l.steps, step{name, stop})
	l.mu.Unlock()
	l.log.Debug("room started", zap.String("room", name))
}

// links registers the close of something that holds links to the namespace. What went
// over them has been told to whoever sent it by then, so a namespace that is gone, or that
// hangs up in the middle of the goodbyes, is no failure. Running out of time is one.
func (l *lifecycle) links(name string, closeLinks func(context.Context) error) {
	l.started(name, func(ctx context.Context) error {
		err := closeLinks(ctx)
		if err != nil && ctx.Err() == nil {
			l.log.Info("links not closed cleanly", zap.String("room", name), zap.Error(err))
			return nil
		}
		return err
	})
}

// connection registers the close of a connection, of which nothing depends any more when
// its turn comes. It gets a moment, and what comes of it is only worth a line.
func (l *lifecycle) connection(name string, closeConnection func(context.Context) error) {
	l.started(name, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, goodbye)
		defer cancel()
		if err := bounded(ctx, closeConnection); err != nil {
			l.log.Info("connection not closed cleanly", zap.String("room", name), zap.Error(err))
		}
		return nil
	})
}

// room runs a room that blocks until its stop is called, and registers the stop. A room
// that ends before that fails the process, with or without an error.
func (l *lifecycle) room(name string, run func() error, stop func(context.Context) error) {
	var stopping atomic.Bool
	var err error // written before done is closed; nil when it has been told
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err = run(); !stopping.Load() && l.fail(name, err) {
			err = nil
		}
	}()
	l.started(name, func(ctx context.Context) error {
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

// background is a room that ends when its context does.
func (l *lifecycle) background(name string, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	l.room(name, func() error { return run(ctx) }, func(context.Context) error {
		cancel()
		return nil
	})
}

// fail reports a room that ended by itself, and whether that is the reason for the end of the process.
func (l *lifecycle) fail(name string, err error) (first bool) {
	if err == nil {
		err = errors.New("it ended for no stated reason")
	}
	select {
	case l.failed <- fmt.Errorf("%s: %w", name, err):
		return true
	default: // the first failure is the reason; the others follow from it
		return false
	}
}

// serving says that every room has been started.
func (l *lifecycle) serving() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == stateStarting {
		l.state = stateServing
	}
}

func (l *lifecycle) current() state {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

// remark says what a process that drains waits for; "" = for its rooms, or it does not drain.
func (l *lifecycle) remark() string {
	l.mu.Lock()
	waiting := l.waiting
	l.mu.Unlock()
	if waiting == nil {
		return ""
	}
	return waiting() // without the lock: it counts connections
}

func (l *lifecycle) waits(what func() string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = what
	if what != nil {
		l.log.Info("draining", zap.String("state", what()))
	}
}

// bounded gives a stop up when its time is over. The SDK's Close, for one, waits for a
// dial of another goroutine whatever its context says; it ends when that does.
func bounded(ctx context.Context, stop func(context.Context) error) error {
	ended := make(chan error, 1)
	go func() { ended <- stop(ctx) }()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		select {
		case err = <-ended: // it may know better what is not done
		case <-time.After(lastWords):
			err = ctx.Err()
		}
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return context.Cause(ctx) // the same in better words
	}
	return err
}

// drain lets apps say their farewells, stops all rooms, the last one first, and returns their
// errors. Whoever calls it a second time waits for the first.
func (l *lifecycle) drain() error {
	l.mu.Lock()
	if l.state == stateDraining || l.state == stateStopped {
		l.mu.Unlock()
		<-l.drained
		return l.err
	}
	l.state = stateDraining
	l.mu.Unlock()
	l.farewell.linger(l.hurried, l.waits)
	l.waits(nil)
	close(l.stopping)
	l.mu.Lock()
	steps := slices.Clone(l.steps)
	l.mu.Unlock()

	deadline := time.Now().Add(l.timeout)
	var errs []error
	for i, s := range slices.Backward(steps) {
		// Every room may use half of what is left, so that one which hangs does not take it
		// all from those that come after; and the first ones are those with work in hand.
		bound := time.Until(deadline)
		if i > 0 {
			bound /= 2
		}
		began := time.Now()
		ctx, cancel := context.WithTimeoutCause(context.Background(), bound,
			fmt.Errorf("not done within %s", bound.Round(time.Millisecond)))
		err := bounded(ctx, s.stop)
		cancel()
		if err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", s.name, err))
		}
		l.log.Debug("room stopped", zap.String("room", s.name), zap.Duration("took", time.Since(began)), zap.Error(err))
	}
	l.err = errors.Join(errs...)
	l.mu.Lock()
	l.state = stateStopped
	l.mu.Unlock()
	close(l.drained)
	return l.err
}
