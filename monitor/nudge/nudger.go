// SPDX-License-Identifier: Apache-2.0

// Package nudge makes the broker expire what is overdue, by receives with one credit.
package nudge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"overdue/internal/operations"
	"overdue/internal/servicebus/link"
	"overdue/monitor/judge"
)

const (
	nudgeInterval = 5 * time.Millisecond // at least; deadlines that lie closer share a nudge
	maxPast       = 1000                 // remembered nudges: those of five seconds
)

// Over nudges over an open receiver without credit. It releases the live message that comes, which
// does not change that message, and returns it; nil: none came. held is how long that message was
// locked, about.
func Over(ctx context.Context, r *link.Receiver, ops *operations.Counter) (first *link.Message, held time.Duration, err error) {
	ops.Add(operations.Nudge, 1)
	began := time.Now()
	m, err := r.Next(ctx)
	held = time.Since(began)
	var live []*link.ReceivedMessage
	if m != nil {
		first, live = &m.Message, append(live, m)
	}
	released, releaseErr := r.GiveBack(ctx, live...)
	ops.Add(operations.Release, released)
	return first, held, errors.Join(err, releaseErr)
}

// Config configures a Nudger. All fields are required.
type Config struct {
	Links      *link.Namespace
	Path       string // of the queue or subscription
	Clock      *judge.Clock
	Operations *operations.Counter
	Nudged     func(error)  // is called after each nudge, with its error
	Go         func(func()) // runs the goroutine
}

// A Nudger nudges one entity in its own goroutine, which runs while nudges are wanted. One nudge
// serves all messages that are overdue when it begins.
type Nudger struct {
	Config
	receiver  *link.Receiver // of the goroutine; without credit between nudges; nil: it is not open
	restUntil time.Time      // of the goroutine; by our clock

	mu      sync.Mutex
	wanted  []time.Time   // by the broker's clock, in whole milliseconds, ascending
	changed chan struct{} // is signalled when wanted has changed
	ended   chan struct{} // is closed when the goroutine ends; nil: none runs
	past    []pastNudge   // the latest
}

// pastNudge is a nudge that was made. Its instants are never ahead of the broker's clock.
type pastNudge struct{ begun, ended time.Time }

func New(cfg Config) *Nudger { return &Nudger{Config: cfg, changed: make(chan struct{}, 1)} }

// Want requests nudges for messages that become due all along a span of time, by the broker's
// clock. The last one begins at its end, or shortly after it.
func (n *Nudger) Want(ctx context.Context, from, until time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for at := from.Add(nudgeInterval); at.Before(until); at = at.Add(nudgeInterval) {
		n.wantLocked(at)
	}
	n.wantLocked(until)
	n.signal()
	if n.ended != nil {
		return
	}
	n.ended = make(chan struct{})
	n.Go(func() {
		for !n.ends() {
			n.serve(ctx)
		}
	})
}

func (n *Nudger) wantLocked(at time.Time) {
	at = at.Add(time.Millisecond - 1).Truncate(time.Millisecond)
	if i, known := slices.BinarySearchFunc(n.wanted, at, time.Time.Compare); !known {
		n.wanted = slices.Insert(n.wanted, i, at)
	}
}

// Rest drops the nudges that are wanted. ended is closed when the one under way has ended; nil:
// none is.
func (n *Nudger) Rest() (ended <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wanted = nil
	n.signal()
	return n.ended
}

func (n *Nudger) signal() {
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

// MadeFor returns when the first nudge ended that began at an instant or later, and whether there
// was one, whatever its result.
func (n *Nudger) MadeFor(due time.Time) (ended time.Time, made bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	i, _ := slices.BinarySearchFunc(n.past, due, func(p pastNudge, due time.Time) int { return p.begun.Compare(due) })
	if i == len(n.past) {
		return time.Time{}, false
	}
	return n.past[i].ended, true
}

// ends ends the goroutine, unless a nudge is wanted again.
func (n *Nudger) ends() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.wanted) > 0 {
		return false
	}
	close(n.ended)
	n.ended = nil
	return true
}

// serve nudges until no nudge is wanted, and closes its receiver. Until the first one is due, it
// opens the receiver, which takes some round trips.
func (n *Nudger) serve(ctx context.Context) {
	defer n.closeReceiver(ctx)
	for wait, more := n.untilNext(ctx); more; wait, more = n.untilNext(ctx) {
		if wait <= 0 {
			n.nudge(ctx)
			continue
		}
		begin := time.After(wait)
		_ = n.open(ctx) // the nudge tries again, and reports it
		select {
		case <-begin:
		case <-n.changed:
		case <-ctx.Done():
		}
	}
}

// untilNext returns how long it is until the next nudge, if one is wanted. When ctx has ended,
// those that wait for one are on their way back to the monitor queue.
func (n *Nudger) untilNext(ctx context.Context) (wait time.Duration, more bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.wanted) == 0 || ctx.Err() != nil {
		n.wanted = nil
		return 0, false
	}
	return max(n.Clock.Until(n.wanted[0]), time.Until(n.restUntil)), true
}

// nudge makes one nudge for all that is due now. The receiver stays open for the next one.
func (n *Nudger) nudge(ctx context.Context) {
	begun := n.Clock.Now()
	n.mu.Lock()
	n.wanted = slices.DeleteFunc(n.wanted, func(due time.Time) bool { return !due.After(begun) })
	n.mu.Unlock()
	wasOpen := n.receiver != nil
	err := n.try(ctx)
	if err != nil && wasOpen && ctx.Err() == nil {
		err = n.try(ctx) // the connection or the entity may be another one by now
	}
	if err != nil { // what it was for is searched for all the same
		err = fmt.Errorf("monitor: nudge %s: %w", n.Path, err)
	}
	n.note(pastNudge{begun, n.Clock.Now()})
	n.Nudged(err)
}

func (n *Nudger) note(one pastNudge) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.past = append(slices.Delete(n.past, 0, max(len(n.past)+1-maxPast, 0)), one)
}

// try nudges over the receiver. The next nudge begins when the oldest live message, which this one
// has held, was free for two thirds of the time.
func (n *Nudger) try(ctx context.Context) error {
	err := n.open(ctx)
	begun, held := time.Now(), time.Duration(0)
	if err == nil {
		_, held, err = Over(ctx, n.receiver, n.Operations)
	}
	n.restUntil = begun.Add(max(nudgeInterval, 3*held+time.Millisecond))
	if err != nil {
		n.closeReceiver(ctx)
	}
	return err
}

// open opens the receiver, unless it is open.
func (n *Nudger) open(ctx context.Context) (err error) {
	if n.receiver != nil {
		return n.receiver.Claim(ctx)
	}
	n.receiver, err = n.Links.BareReceiver(ctx, n.Path, nil)
	return err
}

func (n *Nudger) closeReceiver(ctx context.Context) {
	if n.receiver != nil {
		n.receiver.Close(ctx)
		n.receiver = nil
	}
}
