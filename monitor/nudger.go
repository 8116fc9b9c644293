// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"overdue/internal/operations"
	"overdue/internal/servicebus/link"

	"github.com/Azure/go-amqp"
	"go.uber.org/zap"
)

const (
	// nudgeEvery is the least interval between nudges of one entity. Deadlines that lie closer
	// share a nudge.
	nudgeEvery = 5 * time.Millisecond
	// maxNudged bounds the remembered nudges: at that interval, those of more than a second.
	maxNudged = 256
)

// A nudger nudges one entity in its own goroutine, so that no nudge waits for a check. One
// nudge serves all messages that are overdue when it begins.
type nudger struct {
	w          *Worker
	key        string
	name       string
	afterNudge func() // is called after each nudge
	log        *zap.Logger

	mu      sync.Mutex
	running bool
	wanted  int // the highest number of a nudge that somebody waits for
	last    nudgeTimes
	begun   int // nudges, so far
	ended   int
	past    [maxNudged]nudgeTimes // of those that have worked, in a ring
	worked  int
}

// nudgeTimes says when a nudge was made, by the broker's clock as the worker knows it, which is
// never ahead.
type nudgeTimes struct{ begun, ended time.Time }

// want requests a nudge that begins after the instant due, and returns its number.
func (n *nudger) want(ctx context.Context, due time.Time) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.begun > 0 && !n.last.begun.Before(due) {
		return n.begun
	}
	n.wanted = n.begun + 1
	if !n.running {
		n.running = true
		n.w.running.Go(func() { n.run(ctx) })
	}
	return n.wanted
}

// made returns the number of the last nudge that has ended, whatever its result.
func (n *nudger) made() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.ended
}

// movedAt returns the latest instant at which a nudge has moved messages that were overdue at
// since, if that nudge is remembered.
func (n *nudger) movedAt(since time.Time) (at time.Time, known bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := n.worked; i > max(0, n.worked-maxNudged); i-- {
		past := n.past[(i-1)%maxNudged]
		if past.begun.Before(since) {
			break
		}
		at, known = past.ended, true
	}
	return at, known
}

func (n *nudger) run(ctx context.Context) {
	for {
		n.mu.Lock()
		if n.begun >= n.wanted {
			n.running = false
			n.mu.Unlock()
			return
		}
		n.begun++
		n.last = nudgeTimes{begun: n.w.clock.now()}
		n.mu.Unlock()

		again := time.Now().Add(nudgeEvery)
		err := n.nudge(ctx)
		if err != nil {
			logFailed(n.log, "nudge failed", err) // what it was for is searched for all the same
		}
		n.mu.Lock()
		n.ended = n.begun
		if err == nil {
			n.last.ended = n.w.clock.now()
			n.past[n.worked%maxNudged] = n.last
			n.worked++
		}
		n.mu.Unlock()
		n.afterNudge()
		select {
		case <-time.After(time.Until(again)):
		case <-ctx.Done():
			// Those that wait for another one are on their way back to the monitor queue.
		}
	}
}

func (n *nudger) nudge(ctx context.Context) error {
	r, err := n.w.cfg.Links.BareReceiver(ctx, n.name, nil)
	if link.Condition(err) == link.ConditionNotAllowed {
		n.w.states.update(n.key, func(f *entityState) { f.sessions = true })
	}
	if err == nil {
		_, err = n.w.nudgeOver(ctx, r)
	}
	if err != nil {
		return fmt.Errorf("monitor: nudge %s: %w", n.name, err)
	}
	return nil
}

// nudgeOver nudges over a receiver that was opened for it. first is the sequence number of the
// live message that came; 0: none.
func (w *Worker) nudgeOver(ctx context.Context, r *link.Receiver) (first int64, err error) {
	defer r.Close(ctx)
	m, err := r.Next(ctx)
	w.metrics.operation(operations.Nudge, 1)
	var live []*amqp.Message
	if m != nil {
		first, _ = m.Annotations["x-opt-sequence-number"].(int64)
		live = append(live, m)
	}
	released, releaseErr := r.GiveBack(ctx, live...)
	w.metrics.operation(operations.Release, released)
	return first, errors.Join(err, releaseErr)
}
