// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// notifyAtOnce bounds the notifications that start in one notifyEvery. Each one takes
	// goroutines: if thousands started at once, the next nudge would wait behind all of them.
	notifyAtOnce = 32
	notifyEvery  = time.Millisecond
	// notifyTimeout is how long the next notifications wait for these. It is long enough for a
	// sink that only needs a processor, and short enough that a slow sink still starts with
	// ten thousand a second.
	notifyTimeout = 2 * time.Millisecond
)

// A notifier notifies of the missed deadlines of one entity, a few at a time.
type notifier struct {
	w    *Worker
	name string // of the entity

	mu      sync.Mutex
	queue   []*watch
	running bool
}

// add queues watches. It does not block.
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

// take removes the next watches from the queue. When the queue is empty, it marks the notifier
// as not running.
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

// notify starts the notifications of some missed deadlines, and waits for them up to
// notifyTimeout.
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
