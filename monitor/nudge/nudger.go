// SPDX-License-Identifier: Apache-2.0

// Package nudge makes the broker expire what is overdue, by receives with one credit, and observes
// by them whether somebody else receives. It says where a nudge comes before the check.
package nudge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"overdue/internal/operations"
	"overdue/internal/servicebus/duration"
	"overdue/internal/servicebus/link"
	"overdue/monitor/judge"
	"overdue/monitor/search"

	"golang.org/x/sync/errgroup"
)

const (
	// every is the least interval between nudges of one entity, and everyMany where checks do not
	// keep up. Deadlines that lie closer share a nudge.
	every     = 3 * time.Millisecond
	everyMany = 5 * time.Millisecond
	// within is the interval between nudges in a span of time.
	within = 6 * time.Millisecond
	// maxPast bounds the remembered nudges: at that interval, those of more than a second.
	maxPast = 400
	// openAhead is how long before a nudge its receiver is opened. It has no credit until then.
	openAhead = 500 * time.Millisecond
	// heldFor is after how long it is asked again whether a nudge may be made.
	heldFor = 50 * time.Millisecond
	// Reach is how long after the decision to nudge a message may become due and be expired by the
	// nudge.
	Reach = 50 * time.Millisecond
)

// Config configures a Nudger. All fields are required.
type Config struct {
	Links      *link.Namespace
	Path       string // of the queue or subscription
	Clock      *judge.Clock
	Operations *operations.Counter
	Letters    func() search.LetterState // whether dead letters stay
	First      func() bool               // nudges come first, without a check
	Many       func() bool               // so many deadlines that checks do not keep up
	Proven     func(time.Time) bool      // what expires at that instant needs no dead letter
	// May reports whether what expires until then may do so now; see Retry.
	May      func(context.Context, time.Time) bool
	Sessions func()                // is called when the entity turns out to require sessions
	Failed   func(error)           // is called after each nudge that has failed
	Nudged   func()                // is called after each nudge
	Read     func([]*link.Message) // is called with dead letters read right behind a nudge
	Go       func(func())          // runs the goroutine
}

// A Nudger nudges one entity in its own goroutine, so that no nudge waits for a check. One
// nudge serves all messages that are overdue when it begins.
type Nudger struct {
	Config
	letters     search.NewLetters // behind its nudges
	defaultLife atomic.Int64      // in nanoseconds
	forgotten   atomic.Bool       // quiet is of no use any more

	turn  chan struct{} // a token for the one nudge at a time, and for quiet
	quiet Quiet         // whether somebody else receives

	mu      sync.Mutex
	running bool
	ended   chan struct{} // closed when the goroutine that runs, or ran last, has ended
	wanted  []time.Time   // by the broker's clock: when nudges are wanted, in no order
	earlier chan struct{}
	last    time.Time // when the last nudge that has ended had begun, whatever its result
	past    pastNudges
}

// New makes a Nudger. Want starts it.
func New(cfg Config) *Nudger {
	return &Nudger{Config: cfg, turn: make(chan struct{}, 1), earlier: make(chan struct{}, 1)}
}

// SetDefaultLife sets the time to live that the entity gives to its messages; 0: none.
func (n *Nudger) SetDefaultLife(d time.Duration) { n.defaultLife.Store(int64(d)) }

// Forget drops what nudges have shown: the entity was recreated, or they do not reach all of it.
func (n *Nudger) Forget() { n.forgotten.Store(true) }

// nudged says when a nudge was made, by the broker's clock as the worker knows it, which is
// never ahead.
type nudged struct {
	begun, ended time.Time
}

// pastNudges are the latest nudges that have worked, maxPast at most.
type pastNudges struct {
	all []nudged // a circular buffer
	n   int      // of all so far
}

func (p *pastNudges) add(one nudged) {
	if len(p.all) < maxPast {
		p.all = append(p.all, one)
	} else {
		p.all[p.n%maxPast] = one
	}
	p.n++
}

// after returns when the first of them ended that began at an instant or later.
func (p *pastNudges) after(begun time.Time) (ended time.Time, known bool) {
	first := p.n - len(p.all)
	i := sort.Search(len(p.all), func(i int) bool { return !p.all[(first+i)%maxPast].begun.Before(begun) })
	if i == len(p.all) {
		return time.Time{}, false
	}
	return p.all[(first+i)%maxPast].ended, true
}

// Want requests a nudge that begins at each of these instants, or shortly after it.
func (n *Nudger) Want(ctx context.Context, due ...time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wanted = append(n.wanted, due...)
	if !n.running {
		ended := make(chan struct{})
		n.running, n.ended = true, ended
		n.Go(func() {
			defer close(ended)
			n.run(ctx)
		})
		return
	}
	n.Retry()
}

// Rest drops the nudges that are wanted, and reports whether none is under way.
func (n *Nudger) Rest() (idle bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wanted = nil
	n.Retry()
	return !n.running
}

// End drops the nudges that are wanted, and waits for the one under way. Nobody may want one
// meanwhile.
func (n *Nudger) End() {
	if !n.Rest() {
		<-n.ended
	}
}

// WantWithin requests nudges in a span of time in which messages become due all along.
func (n *Nudger) WantWithin(ctx context.Context, from, until time.Time) {
	var due []time.Time
	for at := from.Add(within); at.Before(until); at = at.Add(within) {
		due = append(due, at)
	}
	n.Want(ctx, append(due, until)...)
}

// Retry has the nudger ask again whether a nudge may be made.
func (n *Nudger) Retry() {
	select {
	case n.earlier <- struct{}{}:
	default:
	}
}

// Made returns when the last nudge began, whatever its result: it was for all that was due by then.
func (n *Nudger) Made() time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.last
}

// MovedAt returns the latest instant at which a nudge has moved messages that were overdue at
// since, if a nudge is remembered that began then or later.
func (n *Nudger) MovedAt(since time.Time) (at time.Time, known bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.past.after(since)
}

func (n *Nudger) run(ctx context.Context) {
	l := links{
		work: &search.View{Links: n.Links, Path: n.Path, Operations: n.Operations},
		dead: &search.View{Links: n.Links, Path: n.Path + "/$DeadLetterQueue", Operations: n.Operations},
	}
	defer l.close(ctx)
	for {
		wait, more := n.untilNext()
		if !more {
			return
		}
		if ahead := wait - openAhead; ahead > 0 {
			wait = ahead
		} else if wait > 0 {
			began := time.Now()
			_ = n.open(ctx, &l) // the nudge tries again, and reports it
			wait = max(wait-time.Since(began), 0)
		}
		if wait <= 0 && !n.May(ctx, n.Clock.Now().Add(Reach)) {
			wait = heldFor
		}
		if wait > 0 {
			select {
			case <-time.After(wait):
			case <-n.earlier:
			case <-ctx.Done():
				n.Rest() // those that wait for it are on their way back to the monitor queue
			}
			continue
		}
		again := time.Now().Add(every)
		if n.Many() {
			again = time.Now().Add(everyMany)
		}
		n.nudgeOnce(ctx, &l)
		select {
		case <-time.After(time.Until(again)):
		case <-ctx.Done():
		}
	}
}

// untilNext returns how long it is until the next nudge that is wanted. Without one, it ends.
func (n *Nudger) untilNext() (wait time.Duration, more bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.wanted) == 0 {
		n.running = false
		return 0, false
	}
	return slices.MinFunc(n.wanted, time.Time.Compare).Sub(n.Clock.Now()), true
}

// nudgeOnce nudges for all that is due now.
func (n *Nudger) nudgeOnce(ctx context.Context, l *links) {
	begun := n.Clock.Now()
	n.mu.Lock()
	n.wanted = slices.DeleteFunc(n.wanted, func(due time.Time) bool { return !due.After(begun) })
	n.mu.Unlock()
	err := n.nudge(ctx, l)
	if err != nil {
		n.Failed(err) // what it was for is searched for all the same
	}
	n.mu.Lock()
	n.last = begun
	if err == nil {
		n.past.add(nudged{begun, n.Clock.Now()})
	}
	n.mu.Unlock()
	n.Nudged()
}

// nudge makes one nudge. The receiver stays open for the next one.
func (n *Nudger) nudge(ctx context.Context, l *links) error {
	kept := l.receiver != nil
	open, nudge := n.nudging(ctx, l)
	err := n.InTurn(ctx, l.work, open, nudge)
	if err != nil || l.receiver.IsStalled() {
		l.closeReceiver(ctx)
	}
	switch {
	case err == nil:
		return nil
	case kept && ctx.Err() == nil: // the connection or the entity may be another one by now
		return n.nudge(ctx, l)
	}
	return fmt.Errorf("monitor: nudge %s: %w", n.Path, err)
}

// InTurn makes a nudge, one at a time. Where dead letters may be taken away, or are too many to
// read, it observes who else receives.
func (n *Nudger) InTurn(ctx context.Context, work *search.View, open func() error, nudge func() (*link.Message, error)) (err error) {
	defer n.takeTurn()()
	if (n.Letters() != search.LettersStay || n.Many()) && (n.First() || n.quiet.Open()) {
		return n.observe(ctx, work, time.Now(), open, nudge)
	}
	n.quiet.Break()
	if err = open(); err == nil {
		_, err = nudge()
	}
	return err
}

// observe makes a nudge that shows whether somebody else receives. If that begins a span, it counts
// from the instant read of our clock. The read before the nudge takes no time beside the opening of
// the receiver.
func (n *Nudger) observe(ctx context.Context, work *search.View, read time.Time, open func() error, nudge func() (*link.Message, error)) (err error) {
	defer func() {
		if err != nil {
			n.quiet.Break()
		}
	}()
	var opening errgroup.Group
	opening.Go(open)
	var last *link.Message
	var readErr error
	if next := n.quiet.Next(); next == nil || n.mayExpire(next, soon) {
		last, readErr = n.quiet.Before(ctx, work, n.Clock.Now())
	}
	if err = opening.Wait(); err != nil {
		return errors.Join(err, readErr)
	}
	begun := n.Clock.Now()
	got, err := nudge() // also after a failed read
	if err = errors.Join(err, readErr); err != nil {
		return err
	}
	n.quiet.After(got, read, begun, n.mayExpire(last, 0))
	if n.mayExpire(got, 0) {
		return n.quiet.Moved(ctx, work)
	}
	return nil
}

// takeTurn waits until nobody else of this worker receives, and returns what ends the turn.
func (n *Nudger) takeTurn() (end func()) {
	n.turn <- struct{}{}
	if n.forgotten.Swap(false) {
		n.quiet = Quiet{}
	}
	return func() { <-n.turn }
}

// soon is how long a nudge takes at most, mostly.
const soon = time.Second

// mayExpire reports whether m, if there is one, can have expired within d from now. Without a clock
// nobody knows.
func (n *Nudger) mayExpire(m *link.Message, d time.Duration) bool {
	now, known := n.Clock.NotAfter()
	if m == nil || !known {
		return false
	}
	life := duration.Shorter(m.TimeToLive, time.Duration(n.defaultLife.Load()))
	return life > 0 && !m.EnqueuedTime.Add(life).After(now.Add(d))
}

// Begin begins to observe whether somebody else receives, unless that is observed already: by a
// nudge, since only that shows what is available. What was read since the instant read of our clock
// counts. It returns since when nobody receives, if that is so for a while.
func (n *Nudger) Begin(ctx context.Context, work, dead *search.View, read time.Time) (since time.Time, steady bool, err error) {
	defer n.takeTurn()()
	if !n.quiet.Open() {
		l := links{work: work, dead: dead}
		defer l.closeReceiver(ctx)
		open, nudge := n.nudging(ctx, &l)
		if err = n.observe(ctx, work, read, open, nudge); err != nil {
			return time.Time{}, false, fmt.Errorf("monitor: nudge %s: %w", n.Path, err)
		}
	}
	since, steady = n.quiet.Steady()
	return since, steady, nil
}

// Observes reports whether it is observed who else receives, and since when.
func (n *Nudger) Observes() (since time.Time, yes bool) {
	defer n.takeTurn()()
	since, _ = n.quiet.Steady()
	return since, n.quiet.Open()
}

// Prove returns what the nudges have shown of other receivers up to the instant due of the clock of
// the broker. If nobody was seen so far, that takes a nudge that follows it.
func (n *Nudger) Prove(ctx context.Context, work, dead *search.View, due time.Time) (shown *Quiet, err error) {
	if wait := due.Sub(n.Clock.Now()) + n.Clock.Grain(); wait > 0 && wait < Reach {
		if _, observed := n.Observes(); observed {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
	defer n.takeTurn()()
	l := links{work: work, dead: dead}
	defer l.closeReceiver(ctx)
	for nudged := due.After(n.Clock.Now()); n.quiet.Open() && n.quiet.UpTo().Before(due); nudged = true {
		if _, err := n.quiet.Before(ctx, work, n.Clock.Now()); err != nil {
			return nil, err
		}
		if nudged || !n.quiet.Open() || !n.quiet.UpTo().Before(due) {
			break
		}
		open, nudge := n.nudging(ctx, &l)
		if err := n.observe(ctx, work, time.Now(), open, nudge); err != nil {
			return nil, fmt.Errorf("monitor: nudge %s: %w", n.Path, err)
		}
	}
	return &Quiet{spans: slices.Clone(n.quiet.spans)}, nil
}
