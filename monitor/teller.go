// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// tellAtOnce is how many events begin to be told in tellEvery. Each takes goroutines of its own: thousands that begin in
	// one instant would all have their turn before the next nudge has.
	tellAtOnce = 32
	tellEvery  = time.Millisecond
	// tellPatience is how long the next ones wait until these are told: long enough for those that only want a processor, and no longer,
	// so that a slow sink begins with ten thousand a second.
	tellPatience = 2 * time.Millisecond
)

// A teller has the missed deadlines of one entity told, some at a time.
type teller struct {
	w    *Worker
	name string // of the entity

	mu      sync.Mutex
	queue   []*watch
	running bool
}

// add has these told after those before. It does not block.
func (t *teller) add(ctx context.Context, missed []*watch) {
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

func (t *teller) run(ctx context.Context) {
	for next := t.take(); len(next) > 0; next = t.take() {
		t.tell(ctx, next)
		time.Sleep(tellEvery)
	}
}

// take takes the next ones out of the queue. When it is empty the caller is no longer running.
func (t *teller) take() (next []*watch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := min(len(t.queue), tellAtOnce)
	next = slices.Clone(t.queue[:n])
	clear(t.queue[:n])
	t.queue = t.queue[n:]
	t.running = n > 0
	return next
}

// tell tells of some missed deadlines, and waits a little until all is told.
func (t *teller) tell(ctx context.Context, missed []*watch) {
	tellings := make([]<-chan struct{}, len(missed))
	for i, wt := range missed {
		tellings[i] = t.w.tell(ctx, t.name, wt)
	}
	patience := time.After(tellPatience)
	for _, over := range tellings {
		select {
		case <-over:
		case <-patience:
			return
		}
	}
}
