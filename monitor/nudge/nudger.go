// SPDX-License-Identifier: Apache-2.0

// Package nudge makes the broker expire what is overdue, by receives with one credit.
package nudge

import (
	"context"
	"errors"
	"slices"
	"sort"
	"sync"
	"time"

	"overdue/internal/operations"
	"overdue/internal/servicebus/link"
	"overdue/monitor/judge"
)

// nudgeInterval is the least interval between nudges. Deadlines that lie closer share one.
const nudgeInterval = 5 * time.Millisecond

// Over nudges over an open receiver without credit. It releases the live message that comes, which
// does not change that message, and returns it; nil: none came.
func Over(ctx context.Context, r *link.Receiver, ops *operations.Counter) (first *link.Message, err error) {
	ops.Add(operations.Nudge, 1)
	m, err := r.Next(ctx)
	var live []*link.ReceivedMessage
	if m != nil {
		first, live = &m.Message, append(live, m)
	}
	released, releaseErr := r.GiveBack(ctx, live...)
	ops.Add(operations.Release, released)
	return first, errors.Join(err, releaseErr)
}

// Config configures a Nudger. All fields are required.
type Config struct {
	Links      *link.Namespace
	Path       string // of the queue or subscription
	Clock      *judge.Clock
	Operations *operations.Counter
	Remembered time.Duration // how long MadeFor knows of a nudge
	Nudged     func(error)   // is called after each nudge, with its error
	Go         func(func())  // runs the goroutine
}

// A Nudger nudges one entity in its own goroutine, which runs while nudges are wanted. One nudge
// serves all messages that are overdue when it begins.
type Nudger struct {
	Config
	receiver  *link.Receiver // of the goroutine; without credit between nudges; nil: it is not open
	restUntil time.Time      // of the goroutine; by our clock

	mu     sync.Mutex
	wanted []time.Time   // by the broker's clock, in whole milliseconds, ascending
	alarm  *time.Timer   // wakes the goroutine: for the first of wanted, or since that has changed
	ended  chan struct{} // is closed when the goroutine ends; nil: none runs
	past   []pastNudge   // ascending
}

// pastNudge is a nudge that was made. Its instants are never ahead of the broker's clock.
type pastNudge struct{ begun, ended time.Time }

// New makes a Nudger, which makes no nudge until one is wanted.
func New(cfg Config) *Nudger { return &Nudger{Config: cfg, alarm: time.NewTimer(0)} }

// Want requests nudges for messages that become due all along a span of time, by the broker's
// clock. The last one begins at its end, or shortly after it.
func (n *Nudger) Want(ctx context.Context, from, until time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for at := from.Add(nudgeInterval); at.Before(until); at = at.Add(nudgeInterval) {
		n.wantLocked(at)
	}
	n.wantLocked(until)
	n.alarm.Reset(0)
	if n.ended == nil {
		n.ended = make(chan struct{})
		n.Go(func() { n.serve(ctx) })
	}
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
	n.alarm.Reset(0)
	return n.ended
}

// MadeFor returns when the first nudge ended that began at an instant or later, and whether there
// was one, whatever its result.
func (n *Nudger) MadeFor(due time.Time) (ended time.Time, made bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	i := sort.Search(len(n.past), func(i int) bool { return !n.past[i].begun.Before(due) })
	if i == len(n.past) {
		return time.Time{}, false
	}
	return n.past[i].ended, true
}

// serve nudges until no nudge is wanted. Until the next one is due, it opens the receiver, which
// takes some round trips.
func (n *Nudger) serve(ctx context.Context) {
	for {
		switch wait, more, ended := n.untilNext(); {
		case more && wait <= 0:
			n.nudge(ctx)
		case more:
			_ = n.open(ctx) // the nudge tries again, and reports it
			<-n.alarm.C
		case ended:
			return
		default:
			n.closeReceiver(ctx) // one may be wanted again by then
		}
	}
}

// untilNext returns how long it is until the next nudge, if one is wanted. Otherwise the goroutine
// ends, once its receiver is closed.
func (n *Nudger) untilNext() (wait time.Duration, more, ended bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.wanted) > 0 {
		wait = max(n.Clock.Until(n.wanted[0]), time.Until(n.restUntil))
		n.alarm.Reset(wait)
		return wait, true, false
	}
	if n.receiver != nil {
		return 0, false, false
	}
	close(n.ended) // another goroutine may begin
	n.ended = nil
	return 0, false, true
}

// nudge makes one nudge for all that is due now. The receiver stays open for the next one. Where
// the nudge fails, what it was for is searched for all the same.
func (n *Nudger) nudge(ctx context.Context) {
	begun, wasOpen := n.Clock.Now(), n.receiver != nil
	err := n.try(ctx)
	if err != nil && wasOpen {
		err = n.try(ctx) // the connection or the entity may be another one by now
	}
	n.note(pastNudge{begun, n.Clock.Now()})
	n.Nudged(err)
}

// note drops what p was for from the nudges that are wanted, and remembers p.
func (n *Nudger) note(p pastNudge) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wanted = slices.DeleteFunc(n.wanted, func(due time.Time) bool { return !due.After(p.begun) })
	n.past = append(n.past, p)
	for p.begun.Sub(n.past[0].ended) > n.Remembered {
		n.past = n.past[1:]
	}
}

// try nudges over the receiver. The next nudge begins when as much time has passed again: the
// oldest live message, which this one has held, must be free for most of the time.
func (n *Nudger) try(ctx context.Context) error {
	err := n.open(ctx)
	begun := time.Now()
	if err == nil {
		_, err = Over(ctx, n.receiver, n.Operations)
	}
	n.restUntil = begun.Add(max(nudgeInterval, 2*time.Since(begun)))
	if err != nil && n.receiver != nil {
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
	n.receiver.Close(ctx)
	n.receiver = nil
}
