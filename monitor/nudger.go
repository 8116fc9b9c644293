// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"overdue/internal/operations"
	"overdue/internal/servicebus/link"
	"overdue/monitor/search"

	"github.com/Azure/go-amqp"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
)

const (
	// nudgeEvery is the least interval between nudges of one entity. Deadlines that lie closer
	// share a nudge.
	nudgeEvery = 5 * time.Millisecond
	// nudgeSlotEvery is the interval between nudges within a slot.
	nudgeSlotEvery = 8 * time.Millisecond
	// maxShown is how many nudges show whether the oldest message is available.
	maxShown = 16
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
	letters    search.NewLetters // behind its nudges
	kept       *search.Kept      // gets the dead letters that are read right behind a nudge

	mu      sync.Mutex
	running bool
	wanted  []time.Time // by the broker's clock: when nudges are wanted, in no order
	earlier chan struct{}
	last    time.Time             // when the last nudge that has ended had begun, whatever its result
	past    [maxNudged]nudgeTimes // of those that have worked, in a circular buffer
	worked  int
}

// nudgeTimes says when a nudge was made, by the broker's clock as the worker knows it, which is
// never ahead.
type nudgeTimes struct {
	begun, ended time.Time
	first        int64 // the sequence number of the live message that came; 0: none
}

// want requests a nudge that begins at each of these instants, or shortly after it.
func (n *nudger) want(ctx context.Context, due ...time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wanted = append(n.wanted, due...)
	if !n.running {
		n.running = true
		n.w.running.Go(func() { n.run(ctx) })
		return
	}
	select {
	case n.earlier <- struct{}{}:
	default:
	}
}

// made returns when the last nudge began, whatever its result: it was for all that was due by then.
func (n *nudger) made() time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.last
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
	dead := search.View{Links: n.w.cfg.Links, Path: n.name + "/$DeadLetterQueue", Operations: n.w.metrics.operations}
	defer dead.Close(ctx) // when the next run may have begun
	for {
		wait, more := n.untilNext()
		if !more {
			return
		}
		if wait > 0 {
			select {
			case <-time.After(wait):
			case <-n.earlier:
			case <-ctx.Done():
				wait = 0 // those that wait for it are on their way back to the monitor queue
			}
			if wait > 0 {
				continue
			}
		}
		again := time.Now().Add(nudgeEvery)
		n.nudgeOnce(ctx, &dead)
		select {
		case <-time.After(time.Until(again)):
		case <-ctx.Done():
		}
	}
}

// untilNext returns how long it is until the next nudge that is wanted. Without one, it marks the
// nudger as not running.
func (n *nudger) untilNext() (wait time.Duration, more bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.wanted) == 0 {
		n.running = false
		return 0, false
	}
	return slices.MinFunc(n.wanted, time.Time.Compare).Sub(n.w.clock.now()), true
}

// nudgeOnce nudges for all that is due now.
func (n *nudger) nudgeOnce(ctx context.Context, dead *search.View) {
	begun := n.w.clock.now()
	n.mu.Lock()
	n.wanted = slices.DeleteFunc(n.wanted, func(due time.Time) bool { return !due.After(begun) || ctx.Err() != nil })
	n.mu.Unlock()
	first, err := n.nudge(ctx, dead)
	if err != nil {
		logFailed(n.log, "nudge failed", err) // what it was for is searched for all the same
	}
	n.mu.Lock()
	n.last = begun
	if err == nil {
		n.past[n.worked%maxNudged] = nudgeTimes{begun, n.w.clock.now(), first}
		n.worked++
	}
	n.mu.Unlock()
	n.afterNudge()
}

func (n *nudger) nudge(ctx context.Context, dead *search.View) (first int64, err error) {
	r, err := n.w.cfg.Links.BareReceiver(ctx, n.name, nil)
	if link.Condition(err) == link.ConditionNotAllowed {
		n.w.states.update(n.key, func(f *entityState) { f.sessions = true })
	}
	var reading errgroup.Group
	if err == nil {
		first, err = n.w.nudgeOver(ctx, r, func() { reading.Go(func() error { return n.keepDeadLetters(ctx, dead) }) })
	}
	if err = errors.Join(err, reading.Wait()); err != nil {
		return 0, fmt.Errorf("monitor: nudge %s: %w", n.name, err)
	}
	return first, nil
}

// lastNudges returns what the last nudges have shown.
func (n *nudger) lastNudges() (last []search.Nudge) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := n.worked; i > max(0, n.worked-maxShown); i-- {
		past := n.past[(i-1)%maxNudged]
		last = append(last, search.Nudge{Ended: past.ended, First: past.first})
	}
	return last
}

// keepDeadLetters keeps the dead letters that the nudge has just made.
func (n *nudger) keepDeadLetters(ctx context.Context, dead *search.View) error {
	known := n.w.states.get(n.key).deadLetters
	return n.letters.Keep(ctx, known.Current(time.Now()), dead, n.kept)
}

// nudgeOver nudges over a receiver that was opened for it, and calls sent when the nudge is on its
// way. first is the sequence number of the live message that came; 0: none.
func (w *Worker) nudgeOver(ctx context.Context, r *link.Receiver, sent func()) (first int64, err error) {
	defer r.Close(ctx)
	m, err := r.Next(ctx, sent)
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
