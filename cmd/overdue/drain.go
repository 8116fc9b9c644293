// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// apps are those who are connected to the doors.
type apps interface {
	// Drain lets no more connections in, and returns when the last one is closed or ctx ends.
	Drain(context.Context) error
	Connections() int
}

// A farewell is what apps get between the word that the process is to stop and its stop. Nothing
// changes for them in that time but that, after min, nobody new is let in.
type farewell struct {
	min, max time.Duration // since the word; max is not below min, or 0
	apps     apps          // nil = there are no doors, and nothing to wait for
}

// linger waits until apps have said their farewells. said is told what is waited for.
func (f *farewell) linger(hurry context.Context, said func(func() string)) {
	if f.apps == nil {
		return
	}
	began := time.Now()
	left := func(d time.Duration) time.Duration { return max(0, d-time.Since(began)).Round(100 * time.Millisecond) }
	if f.min > 0 {
		said(func() string { return fmt.Sprintf("the doors stay open for %s more", left(f.min)) })
		select {
		case <-time.After(f.min):
		case <-hurry.Done():
			return
		}
	}
	if f.max > f.min && hurry.Err() == nil {
		if f.apps.Connections() > 0 {
			said(func() string {
				return fmt.Sprintf("waits for the connections of apps (%d), for %s at most", f.apps.Connections(), left(f.max))
			})
		}
		ctx, cancel := context.WithTimeout(hurry, f.max-f.min)
		defer cancel()
		_ = f.apps.Drain(ctx) // whoever is still there has had the time
	}
}

// errTerminated is the cause of a context that SIGTERM has ended: the one way to ask for an end
// that leaves time. Who types Ctrl-C does not want to wait.
var errTerminated = errors.New("SIGTERM")

// untilSignal is a context that ends with the first SIGINT or SIGTERM. The second one has its usual
// effect: the end; but see handleHurry.
func untilSignal() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		s := <-signals
		signal.Stop(signals)
		if s == syscall.SIGTERM {
			cancel(errTerminated)
			return
		}
		cancel(fmt.Errorf("signal: %s", s))
	}()
	return ctx
}

// hurryOn cuts a farewell short when somebody asks for the end once more, by a signal or by quitquitquit,
// or when a room fails, which is remembered. done ends the watch, and returns that failure.
func (p *process) hurryOn() (done func() error) {
	again := make(chan os.Signal, 1)
	signal.Notify(again, os.Interrupt, syscall.SIGTERM)
	end, ended := make(chan struct{}), make(chan struct{})
	var failure error
	go func() {
		defer close(ended)
		defer signal.Stop(again)
		select {
		case <-end:
		case <-p.life.stopping: // the farewell is over
		case <-again:
		case <-p.admin.quit:
		case failure = <-p.life.failed:
		}
		p.life.hurry()
	}()
	return func() error {
		close(end)
		<-ended
		return failure
	}
}
