// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

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
