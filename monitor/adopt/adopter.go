// SPDX-License-Identifier: Apache-2.0

// Package adopt gives companions to messages that bypass the endpoints. It reads the queues and
// subscriptions of the adopted entities at intervals, from where the last pass ended.
package adopt

import (
	"context"
	"crypto/rand"
	mathrand "math/rand/v2"
	"strings"
	"sync"
	"time"

	"overdue/internal/operations"
	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/link"
	"overdue/monitor/intake"
	"overdue/monitor/judge"
	"overdue/monitor/search"
	"overdue/scheduler"

	"go.uber.org/zap"
)

const (
	// lostAfter is the number of intervals without a note after which a worker looks for one, and
	// starts over if there is none.
	lostAfter = 10
	// retryMost bounds how long a note that could not be rewritten stays locked.
	retryMost = 5 * time.Second
	// twinFor is for how many intervals a note is remembered, to notice a second one.
	twinFor = 3
)

// An Entity is a queue or topic whose messages get companions although they bypassed the endpoints.
type Entity struct {
	Entity string
	Every  time.Duration // how often it is read for new messages
}

// Config configures an Adopter. Describe and HasNote may be nil.
type Config struct {
	Links        *link.Namespace
	Scheduler    *scheduler.Scheduler // writes companions and notes
	MonitorQueue string
	HasNote      func(ctx context.Context, prefix string) (bool, error) // where the monitor queue keeps no notes
	Settings     func(ctx context.Context, name string) judge.Settings
	Describe     func(ctx context.Context, name string, since time.Time) (entities.Info, error)
	Operations   *operations.Counter
	Log          *zap.Logger
	Adopted      func(path string, n int) // n messages have got companions
	Latest       func() time.Time         // an instant that the broker's clock has not reached yet, or just now
	Crowded      func() bool              // there is more urgent work: a pass ends early
	Stopping     func() bool
}

// An Adopter runs the passes of a worker.
type Adopter struct {
	cfg     Config
	changed chan struct{} // one token: Set was called
	refused sync.Map      // paths whose refusal was logged

	mu       sync.Mutex
	entities map[string]*adopted // by lower-case name
}

// adopted is what a worker knows of an adopted entity.
type adopted struct {
	Entity
	series string
	turn   int64
	seen   time.Time // by our clock: when a note of it was last here
}

// New makes an Adopter without entities.
func New(cfg Config) *Adopter { return &Adopter{cfg: cfg, changed: make(chan struct{}, 1)} }

// Set replaces the adopted entities. Those that stay continue where they are.
func (a *Adopter) Set(all []Entity) {
	a.mu.Lock()
	defer a.mu.Unlock()
	next := map[string]*adopted{}
	for _, e := range all {
		key := strings.ToLower(e.Entity)
		s := a.entities[key]
		if s == nil {
			s = &adopted{}
		}
		s.Entity = Entity{e.Entity, max(e.Every, time.Second)}
		next[key] = s
	}
	a.entities = next
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// Run writes missing notes until ctx ends.
func (a *Adopter) Run(ctx context.Context) {
	// Workers that start together do not look together.
	wait := time.Second + mathrand.N(2*time.Second)
	var changed <-chan struct{} // after that
	for {
		select {
		case <-time.After(wait):
		case <-changed:
		case <-ctx.Done():
			return
		}
		changed = a.changed
		var lost []Entity
		lost, wait = a.lost(time.Now())
		for _, e := range lost {
			if err := a.begin(ctx, e); err != nil && ctx.Err() == nil {
				a.cfg.Log.Warn("adopt pass not scheduled", zap.String("work_queue", e.Entity), zap.Duration("retry_in", wait), zap.Error(err))
			}
		}
	}
}

// lost returns the adopted entities whose note is missing, and when to check again.
func (a *Adopter) lost(now time.Time) (lost []Entity, wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	wait = time.Hour
	for _, s := range a.entities {
		wait = min(wait, s.Every)
		if s.seen.IsZero() || now.Sub(s.seen) >= lostAfter*s.Every {
			lost = append(lost, s.Entity)
		}
	}
	return lost, wait
}

// begin writes the first note of an entity, unless there is one.
func (a *Adopter) begin(ctx context.Context, e Entity) error {
	now := a.cfg.Scheduler.Now()
	found, err := a.hasNote(ctx, e, now)
	if err != nil {
		return err
	}
	if !found {
		if err := a.write(ctx, note{Entity: e.Entity, Series: rand.Text(), Positions: map[string]position{}}, now.Time); err != nil {
			return err
		}
	}
	a.update(e.Entity, func(s *adopted) { s.seen = time.Now() })
	return nil
}

// hasNote reports whether the entity has a note.
func (a *Adopter) hasNote(ctx context.Context, e Entity, now scheduler.Instant) (found bool, err error) {
	prefix := noteID(e.Entity)
	if a.cfg.HasNote != nil {
		return a.cfg.HasNote(ctx, prefix)
	}
	v := search.View{Links: a.cfg.Links, Path: a.cfg.MonitorQueue, Operations: a.cfg.Operations, Seen: &search.SeenIDs{}}
	defer v.Close(ctx)
	// The last note was written at most an interval ago; twice that for a worker that is slow.
	from := now.Time.Add(-now.Uncertainty - 2*max(e.Every, time.Minute))
	if !now.Measured {
		from = time.Time{}
	}
	err = v.Between(ctx, from, search.Forever, func(m *link.Message) { found = found || strings.HasPrefix(m.MessageID, prefix) })
	return found, err
}

// update changes what is known of an entity, if it is adopted.
func (a *Adopter) update(entity string, change func(*adopted)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.entities[strings.ToLower(entity)]; s != nil {
		change(s)
	}
}

// admit reports whether this worker adopts the entity of a note that is due, and whether the note
// is the one that continues.
func (a *Adopter) admit(n note, now time.Time) (e Entity, ok bool) {
	a.update(n.Entity, func(s *adopted) {
		e = s.Entity
		if twin := s.series < n.Series || s.series == n.Series && s.turn >= n.Turn; s.series != "" && twin && now.Sub(s.seen) < twinFor*s.Every {
			return
		}
		s.series, s.turn, s.seen, ok = n.Series, n.Turn, now, true
	})
	return e, ok
}

// readmit accepts a note again that could not be rewritten.
func (a *Adopter) readmit(n note) {
	a.update(n.Entity, func(s *adopted) { s.turn = n.Turn - 1 })
}

// Pass runs the pass of a note that is due, writes the next note, and settles l.
func (a *Adopter) Pass(ctx context.Context, l *intake.Lease) {
	n, err := parseNote(l.Body)
	outcome, settle := "completed", l.Complete
	switch {
	case err != nil:
		a.cfg.Log.Warn("adopt note refused: it is kept as a dead letter", zap.String("monitor_queue", l.Queue), zap.String("message_id", l.ID), zap.Error(err))
		outcome, settle = "dead-lettered", func(ctx context.Context) error { return l.DeadLetter(ctx, intake.Malformed, err.Error()) }
	case a.cfg.Stopping() || !a.pass(ctx, n):
		outcome, settle = "handed back", l.HandBack
	}
	if err := settle(ctx); err != nil {
		a.cfg.Log.Warn("adopt note not "+outcome+": the pass is repeated", zap.String("monitor_queue", l.Queue), zap.Error(err))
	}
}

// pass runs the pass of a note, and writes the next note. It reports whether n is done with.
func (a *Adopter) pass(ctx context.Context, n note) (done bool) {
	e, ok := a.admit(n, time.Now())
	if !ok {
		a.cfg.Log.Info("adopt note dropped: this monitor does not adopt its entity, or another note does", zap.String("work_queue", n.Entity))
		return true
	}
	began := a.cfg.Latest()
	if n.Positions == nil {
		n.Positions = map[string]position{}
	}
	p := pass{a: a, entity: e.Entity, positions: n.Positions}
	err := p.run(ctx)
	if err != nil {
		a.cfg.Log.Warn("adopt pass failed", zap.String("work_queue", e.Entity), zap.Duration("retry_in", e.Every), zap.Error(err))
	}
	due := began.Add(e.Every)
	if p.more && err == nil {
		due = a.cfg.Latest().Add(min(rest, e.Every))
	}
	next := note{Entity: n.Entity, Series: n.Series, Turn: n.Turn + 1, Positions: p.positions}
	if err := a.write(ctx, next, due); err != nil {
		a.cfg.Log.Warn("adopt note not rewritten: the pass is repeated", zap.String("work_queue", n.Entity), zap.Error(err))
		select {
		case <-time.After(min(e.Every, retryMost)):
		case <-ctx.Done():
		}
		a.readmit(n)
		return false
	}
	return true
}
