// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// notifyAtOnce is how many events begin to be notified in tellEvery. Each takes goroutines of its own: thousands that begin in
	// one instant would all have their turn before the next nudge has.
	notifyAtOnce = 32
	notifyEvery  = time.Millisecond
	// notifyTimeout is how long the next ones wait until these are notified: long enough for those that only want a processor, and no longer,
	// so that a slow sink begins with ten thousand a second.
	notifyTimeout = 2 * time.Millisecond
)

// A notifier has the missed deadlines of one entity told, some at a time.
type notifier struct {
	w    *Worker
	name string // of the entity

	mu      sync.Mutex
	queue   []*watch
	running bool
}

// add has these told after those before. It does not block.
func (t *notifier) add(ctx context.Context, missed []*watch) {
	if len(missed) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queue = append(t.queue, missed...)
	if !t.running {
		t.running = true
		t.w.running.Go(func() { t.run(ctx) })
	}
}

func (t *notifier) run(ctx context.Context) {
	for next := t.take(); len(next) > 0; next = t.take() {
		t.notify(ctx, next)
		time.Sleep(notifyEvery)
	}
}

// take takes the next ones out of the queue. When it is empty the caller is no longer running.
func (t *notifier) take() (next []*watch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := min(len(t.queue), notifyAtOnce)
	next = slices.Clone(t.queue[:n])
	clear(t.queue[:n])
	t.queue = t.queue[n:]
	t.running = n > 0
	return next
}

// notify tells of some missed deadlines, and waits a little until all is notified.
func (t *notifier) notify(ctx context.Context, missed []*watch) {
	tellings := make([]<-chan struct{}, len(missed))
	for i, wt := range missed {
		tellings[i] = t.w.notify(ctx, t.name, wt)
	}
	patience := time.After(notifyTimeout)
	for _, over := range tellings {
		select {
		case <-over:
		case <-patience:
			return
		}
	}
}
