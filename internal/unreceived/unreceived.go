// SPDX-License-Identifier: Apache-2.0

// Package unreceived notices companions that are due and that no monitor receives. A process that
// writes companions watches the monitor queue with it, so that somebody notices when every monitor
// is dead, or receives from another queue.
//
// A [Watch] peeks at one companion that is due, the suspect, until it is gone. A peek shows no
// locks: a monitor that lives may hold the suspect, or be busy with those before it. So once the
// suspect has been due for long, the watch receives one message and releases it at once. The broker
// hands out the oldest message that nobody holds. If that is the suspect, nobody has asked for it.
package unreceived

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"overdue/internal/operations"
	"overdue/internal/plural"
	"overdue/internal/servicebus/link"
)

const (
	// checkInterval is the interval of the checks. A dead monitor is noticed within unheldPeriod and
	// two of them.
	checkInterval = 12 * time.Second
	// unheldPeriod is for how long a companion is due before anybody asks whether it is held. A
	// monitor rewrites what it holds for 40 s.
	unheldPeriod = 42 * time.Second
	// unreceivedPeriod is how long after it was free a companion that is still there counts as
	// unreceived, although others are before it now.
	unreceivedPeriod = time.Minute
	// watchPeriod is how long the watch goes on after the last companion of its process was due, and
	// after the start: companions of the process before may be due.
	watchPeriod = 3 * time.Minute
	// page and pages bound what one check peeks at.
	page, pages = 250, 4
	// firstLeap is how many numbers a check passes over at first, if the one before did not get to the
	// end of the queue.
	firstLeap = page * pages
	// suspectTries is how often a check receives, suspectPause how long it waits between: another
	// watch may have the suspect at this instant.
	suspectTries, suspectPause = 3, 200 * time.Millisecond
	timeout                    = 30 * time.Second // of one check
)

// Config holds the settings of a Watch. Links, Queue, Now and LastDue are required.
type Config struct {
	Links *link.Namespace
	Queue string           // the monitor queue
	Now   func() time.Time // the broker's clock, as far as it is known
	// LastDue returns when the last companion of this process there is due: long ago, if it wrote
	// none.
	LastDue    func() time.Time
	Operations *operations.Counter // nil: not counted
	Log        *zap.Logger         // nil: none
}

// A Watch looks for companions that nobody receives.
type Watch struct {
	cfg Config

	// Of Run alone.
	from    int64 // companions before that number are not due, or known
	leap    int64
	suspect *suspect
	failed  bool // the last check did, and that is logged

	mu    sync.Mutex
	found found
}

// A suspect is a companion that is due. No older one was known when it was chosen.
type suspect struct {
	number   int64
	count    uint32    // its delivery count
	since    time.Time // by our clock: due, or last held by somebody
	free     time.Time // by our clock: when it was found held by nobody; zero: not yet
	released bool      // by us, since count was read: that may count
}

// found is what the watch shows.
type found struct {
	n     int  // companions that are due and not received; 0: none
	more  bool // there may be more
	since time.Time
}

// New makes a Watch. [Watch.Run] makes the checks.
func New(cfg Config) (*Watch, error) {
	if cfg.Links == nil || cfg.Queue == "" || cfg.Now == nil || cfg.LastDue == nil {
		return nil, errors.New("unreceived: Links, Queue, Now and LastDue are required")
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	w := &Watch{cfg: cfg}
	return w, nil
}

// Register shows what the watches of all monitor queues have found, as a metric.
func Register(r prometheus.Registerer, watches ...*Watch) {
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "overdue_unreceived_companions",
		Help: "Companions that are due and that no monitor receives, as far as one check finds them; 0 while monitors receive.",
	}, func() (sum float64) {
		for _, w := range watches {
			sum += float64(w.state().n)
		}
		return sum
	}))
}

func (w *Watch) state() found {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.found
}

// Check returns nil while monitors receive companions, and otherwise how many wait.
func (w *Watch) Check(context.Context) error {
	f := w.state()
	if f.n == 0 {
		return nil
	}
	n := plural.Of(f.n, "companion due", "companions due")
	if f.more {
		n = "at least " + n
	}
	return fmt.Errorf("%s on %s, the oldest for %v, and nobody receives them: start `overdue monitor`, or check why it does not receive",
		n, w.cfg.Queue, time.Since(f.since).Round(time.Second))
}

// Run checks the monitor queue at intervals until ctx ends, as long as companions of this process
// are to come.
func (w *Watch) Run(ctx context.Context) error {
	started := time.Now()
	for {
		select {
		case <-time.After(time.Duration(float64(checkInterval) * (0.9 + 0.2*rand.Float64()))):
		case <-ctx.Done():
			return nil
		}
		if time.Since(started) > watchPeriod && w.suspect == nil && w.cfg.Now().Sub(w.cfg.LastDue()) > watchPeriod {
			continue
		}
		trial, cancel := context.WithTimeout(ctx, timeout)
		err := w.Look(trial)
		cancel()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			w.from, w.leap = 0, 0 // the queue may be a new one, whose numbers begin again
		}
		if err != nil && !w.failed {
			w.cfg.Log.Debug("monitor queue not checked for companions that nobody receives", zap.String("monitor_queue", w.cfg.Queue), zap.Error(err))
		}
		w.failed = err != nil
	}
}

// Look makes one check. [Watch.Check] has what it found.
func (w *Watch) Look(ctx context.Context) error {
	p, err := w.cfg.Links.Peeker(ctx, w.cfg.Queue)
	if err != nil {
		return err
	}
	due, more, err := w.peek(ctx, p)
	if err != nil {
		return err // it is closed
	}
	p.Close(ctx)
	w.settle(due)
	received := w.suspect == nil || w.state().n == 0
	if w.suspect != nil && received && time.Since(w.suspect.since) >= unheldPeriod {
		if received, err = w.isReceived(ctx); err != nil {
			return err
		}
	}
	if received {
		w.show(found{})
	} else {
		w.show(found{n: len(due), more: more, since: w.suspect.since})
	}
	return nil
}

// peek returns companions that are due, in the order in which they became due, and whether there
// may be more. While all seems well it stops at the first page that has any.
//
// A scheduled message that becomes due gets a new number, behind all others. So one that was seen
// waiting needs no second look.
func (w *Watch) peek(ctx context.Context, p *link.Peeker) (due []*link.Message, more bool, err error) {
	from := w.from + max(w.leap, 0)
	for i := 0; i < pages; i++ {
		ms, err := p.Peek(ctx, from, page)
		w.cfg.Operations.Add(operations.Peek, 1)
		if err != nil {
			return nil, false, err
		}
		if len(ms) == 0 && w.leap > 0 { // that was too far
			w.leap, from = w.leap/4, w.from
			if w.leap < page {
				w.leap = 0
			}
			continue
		}
		for _, m := range ms {
			from = m.SequenceNumber + 1
			if m.State == link.Active {
				due = append(due, m)
			}
		}
		if len(due) == 0 {
			w.from = from
		} else {
			w.from = due[0].SequenceNumber
		}
		if w.leap > 0 && i == 0 {
			w.leap *= 2
		}
		end := w.isLast(ms)
		if end || len(due) > 0 && w.state().n == 0 {
			w.leap = 0
			return due, !end, nil
		}
	}
	w.leap = max(w.leap, firstLeap)
	if len(due) > 0 {
		w.leap = 0
	}
	return due, true, nil
}

// isLast reports whether a page ends the queue. It may be short although there is more. If its last
// message came just now, there is little.
func (w *Watch) isLast(ms []*link.Message) bool {
	return len(ms) == 0 || len(ms) < page && w.cfg.Now().Sub(ms[len(ms)-1].EnqueuedTime) < 2*checkInterval
}

// settle judges the suspect by what is due, and chooses another one if it is gone.
func (w *Watch) settle(due []*link.Message) {
	if len(due) == 0 {
		w.suspect = nil
		return
	}
	first := due[0]
	s := w.suspect
	if s == nil || s.number != first.SequenceNumber {
		age := max(w.cfg.Now().Sub(first.EnqueuedTime), 0)
		w.suspect = &suspect{number: first.SequenceNumber, count: first.DeliveryCount, since: time.Now().Add(-age)}
		if s != nil { // it was received, so somebody lives
			w.show(found{})
		}
		return
	}
	if first.DeliveryCount != s.count && !s.released { // somebody had it, and lost it
		s.since, s.free = time.Now(), time.Time{}
		w.show(found{})
	}
	s.count, s.released = first.DeliveryCount, false
}

// isReceived reports whether a monitor may have the suspect, or those before it.
func (w *Watch) isReceived(ctx context.Context) (bool, error) {
	s := w.suspect
	if !s.free.IsZero() && time.Since(s.free) >= unreceivedPeriod {
		return false, nil
	}
	r, err := w.cfg.Links.BareReceiver(ctx, w.cfg.Queue, nil)
	if err != nil {
		return false, err
	}
	defer r.Close(ctx)
	for range suspectTries {
		m, err := r.Next(ctx)
		if err != nil {
			return false, err
		}
		if m == nil { // all of them are held
			s.since = time.Now()
			return true, nil
		}
		w.cfg.Operations.Add(operations.Receive, 1)
		if _, err := r.GiveBack(ctx, m); err != nil {
			return false, err
		}
		w.cfg.Operations.Add(operations.Release, 1)
		if m.SequenceNumber == s.number {
			s.released = true
			return false, nil
		}
		if m.SequenceNumber < s.number { // it is older: the monitor is behind, or there is none
			w.from = m.SequenceNumber
			w.suspect = &suspect{number: m.SequenceNumber, since: time.Now().Add(-max(w.cfg.Now().Sub(m.EnqueuedTime), 0)), free: time.Now(), released: true}
			return true, nil
		}
		select { // another watch has it, or a monitor
		case <-time.After(time.Duration(float64(suspectPause) * (0.5 + rand.Float64()))):
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
	s.since = time.Now()
	return true, nil
}

// show shows what was found, and logs when it begins and ends.
func (w *Watch) show(f found) {
	w.mu.Lock()
	before := w.found
	w.found = f
	w.mu.Unlock()
	switch {
	case before.n == 0 && f.n > 0:
		w.cfg.Log.Warn("companions are due, and nobody receives them", zap.String("monitor_queue", w.cfg.Queue), zap.Int("companions", f.n),
			zap.Duration("due_for", time.Since(f.since).Round(time.Second)), zap.String("next", "start overdue monitor, or check why it does not receive"))
	case before.n > 0 && f.n == 0:
		w.cfg.Log.Info("companions are received again", zap.String("monitor_queue", w.cfg.Queue))
	}
}
