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
	nudgeInterval = 5 * time.Millisecond   // at least; deadlines that lie closer share a nudge
	restRatio     = 2                      // times its duration it rests after a nudge, which holds the oldest live message
	openAhead     = 500 * time.Millisecond // before a nudge its receiver is opened, which takes some round trips
	maxPast       = 1000                   // remembered nudges: those of five seconds
)

// Over nudges over an open receiver without credit. It releases the live message that comes, which
// does not change that message, and returns it; nil: none came. held is how long that message was
// locked, about.
func Over(ctx context.Context, r *link.Receiver, ops *operations.Counter) (first *link.Message, held time.Duration, err error) {
	began := time.Now()
	m, err := r.Next(ctx)
	held = time.Since(began)
	ops.Add(operations.Nudge, 1)
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
	Sessions   func()       // is called when the entity turns out to require sessions
	Failed     func(error)  // is called after each nudge that has failed
	Nudged     func()       // is called after each nudge
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
type pastNudge struct {
	begun, ended time.Time
	failed       bool
}

func New(cfg Config) *Nudger { return &Nudger{Config: cfg, changed: make(chan struct{}, 1)} }

// Want requests a nudge that begins at each of these instants of the broker's clock, or shortly
// after it.
func (n *Nudger) Want(ctx context.Context, due ...time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, at := range due {
		at = at.Add(time.Millisecond - 1).Truncate(time.Millisecond)
		if i, known := slices.BinarySearchFunc(n.wanted, at, time.Time.Compare); !known {
			n.wanted = slices.Insert(n.wanted, i, at)
		}
	}
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

// WantWithin requests nudges in a span of time in which messages become due all along.
func (n *Nudger) WantWithin(ctx context.Context, from, until time.Time) {
	for at := from.Add(nudgeInterval); at.Before(until); at = at.Add(nudgeInterval) {
		n.Want(ctx, at)
	}
	n.Want(ctx, until)
}

// Rest drops the nudges that are wanted, and reports whether none is under way.
func (n *Nudger) Rest() (idle bool) { return n.dropWanted() == nil }

// End drops the nudges that are wanted, and waits for the one under way.
func (n *Nudger) End() {
	if ended := n.dropWanted(); ended != nil {
		<-ended
	}
}

func (n *Nudger) dropWanted() (ended chan struct{}) {
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

// Made returns when the last nudge that has ended had begun, whatever its result: it was for all
// that was due by then.
func (n *Nudger) Made() (begun time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.past) > 0 {
		begun = n.past[len(n.past)-1].begun
	}
	return begun
}

// MovedAt returns the latest instant at which a nudge has moved messages that were overdue at
// since, if a nudge is remembered that began then or later, and has worked.
func (n *Nudger) MovedAt(since time.Time) (ended time.Time, known bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := len(n.past) - 1; i >= 0 && !n.past[i].begun.Before(since); i-- {
		if !n.past[i].failed {
			ended, known = n.past[i].ended, true
		}
	}
	return ended, known
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

// serve nudges until no nudge is wanted, and closes its receiver.
func (n *Nudger) serve(ctx context.Context) {
	defer n.closeReceiver(ctx)
	for {
		wait, more := n.untilNext(ctx)
		switch {
		case !more:
			return
		case wait <= 0:
			n.nudgeAll(ctx)
			continue
		case wait > openAhead:
			n.closeReceiver(ctx) // an open one is a listener
			wait -= openAhead
		default:
			opening := time.Now()
			_ = n.open(ctx) // the nudge tries again, and reports it
			wait -= time.Since(opening)
		}
		select {
		case <-time.After(wait):
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
	if ctx.Err() != nil {
		n.wanted = nil
	}
	if len(n.wanted) == 0 {
		return 0, false
	}
	return max(n.Clock.Until(n.wanted[0]), time.Until(n.restUntil)), true
}

// nudgeAll nudges for all that is due now.
func (n *Nudger) nudgeAll(ctx context.Context) {
	begun := n.Clock.Now()
	n.mu.Lock()
	n.wanted = slices.DeleteFunc(n.wanted, func(due time.Time) bool { return !due.After(begun) })
	n.mu.Unlock()
	err := n.nudge(ctx)
	if err != nil {
		n.Failed(fmt.Errorf("monitor: nudge %s: %w", n.Path, err)) // what it was for is searched for all the same
	}
	n.note(pastNudge{begun: begun, ended: n.Clock.Now(), failed: err != nil})
	n.Nudged()
}

func (n *Nudger) note(one pastNudge) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.past = append(slices.Delete(n.past, 0, max(len(n.past)+1-maxPast, 0)), one)
}

// nudge makes one nudge. The receiver stays open for the next one.
func (n *Nudger) nudge(ctx context.Context) error {
	kept := n.receiver != nil
	err := n.open(ctx)
	begun := time.Now()
	var held time.Duration
	if err == nil {
		_, held, err = Over(ctx, n.receiver, n.Operations)
	}
	n.restUntil = begun.Add(max(nudgeInterval, (1+restRatio)*held+time.Millisecond))
	if err == nil {
		return nil
	}
	n.closeReceiver(ctx)
	if kept && ctx.Err() == nil {
		return n.nudge(ctx) // the connection or the entity may be another one by now
	}
	return err
}

// open opens the receiver, unless it is open.
func (n *Nudger) open(ctx context.Context) (err error) {
	if n.receiver != nil {
		return n.receiver.Claim(ctx)
	}
	n.receiver, err = n.Links.BareReceiver(ctx, n.Path, nil)
	if link.Condition(err) == link.ConditionNotAllowed {
		n.Sessions()
	}
	return err
}

func (n *Nudger) closeReceiver(ctx context.Context) {
	if n.receiver != nil {
		n.receiver.Close(ctx)
		n.receiver = nil
	}
}
