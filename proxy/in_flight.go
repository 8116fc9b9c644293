// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"overdue/internal/lifecycle"
)

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
	select {
	case f.places <- struct{}{}:
	default:
		f.queued.Add(1)
		defer f.queued.Add(-1)
		ctx, cancel := context.WithTimeout(ctx, f.timeout)
		defer cancel()
		select {
		case f.places <- struct{}{}:
		case <-ctx.Done():
			return fmt.Errorf("proxy: %w", errBusy)
		}
	}
	return f.entered()
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
