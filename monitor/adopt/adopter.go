// SPDX-License-Identifier: Apache-2.0

// Package adopt gives companions to messages that have none, or one that is due too late. It reads
// the adopted entities at intervals, from where the last pass ended. And it reads an entity for a
// while when its settings were changed, or when the monitor queue was recreated.
package adopt

import (
	"context"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"overdue/internal/operations"
	"overdue/internal/servicebus/duration"
	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/link"
	"overdue/monitor/intake"
	"overdue/monitor/judge"
	"overdue/scheduler"

	"go.uber.org/zap"
)

const (
	// lostIntervals is the number of intervals without a note after which a worker looks for one,
	// and starts over if there is none. For twinIntervals it drops a note that is behind the last.
	lostIntervals = 10
	twinIntervals = 3
	// maxPasses bounds the passes that run at once: all entities may be requested together.
	maxPasses = 16
	// maxEntities bounds the entities that are read, and those whose settings are remembered: every
	// writer to the monitor queue can choose names.
	maxEntities = 10_000
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
	// HasNote says whether there is a note, where the monitor queue keeps none.
	HasNote    func(ctx context.Context, prefix string) (bool, error)
	Settings   func(ctx context.Context, name string) judge.Settings
	Describe   func(ctx context.Context, name string, since time.Time) (entities.Info, error)
	Operations *operations.Counter
	Log        *zap.Logger
	Latest     func() time.Time         // the broker's clock has not reached it, or just now
	Busy       func() bool              // there is more urgent work: a pass ends early
	Adopted    func(path string, n int) // n messages have got companions
	// Notified reports whether it was notified that a message missed its deadline.
	Notified func(path string, number int64, enqueued time.Time) bool
}

// An Adopter runs the passes of a worker.
type Adopter struct {
	cfg     Config
	changed chan struct{} // one token: there are other series
	passing chan struct{} // one token for each pass
	refused sync.Map      // paths whose refusal was logged

	mu     sync.Mutex
	series map[string]*series // by the key of their notes
	known  map[string]changes // by lower-case name
}

// series is the passes over one entity, as a worker knows them.
type series struct {
	first note // begins it
	every time.Duration
	turn  int64     // of the note that was here last
	seen  time.Time // by our clock: when it was here; zero: there is no note yet
}

// changes is when the settings of an entity were changed, by the clock of the namespace: for the
// last time, and for the last time for which the entity is read.
type changes struct{ last, read time.Time }

// New makes an Adopter without entities.
func New(cfg Config) *Adopter {
	return &Adopter{
		cfg:     cfg,
		changed: make(chan struct{}, 1),
		passing: make(chan struct{}, maxPasses),
		series:  map[string]*series{},
		known:   map[string]changes{},
	}
}

// Set replaces the adopted entities. Those that stay continue where they are.
func (a *Adopter) Set(all []Entity) {
	a.mu.Lock()
	defer a.mu.Unlock()
	adopted := map[string]bool{}
	for _, e := range all {
		adopted[note{Entity: e.Entity}.key()] = true
		a.addLocked(note{Entity: e.Entity}, max(e.Every, time.Second))
	}
	maps.DeleteFunc(a.series, func(key string, s *series) bool { return s.first.Request == nil && !adopted[key] })
}

// Saw takes the description of a queue or topic. sent is when the first message was sent whose
// companion is in hand, by the clock of the broker; zero: unknown. If the settings were changed
// since the last call, or lately since then, senders may not know that for a while. Their
// companions are due by a default time to live that does not hold any more, so the entity is read.
func (a *Adopter) Saw(entity string, info *entities.Info, sent time.Time) {
	changed, shortest := info.UpdatedAt, info.DefaultMessageTimeToLive
	for i := range info.Subscriptions {
		changed = duration.Later(changed, info.Subscriptions[i].UpdatedAt)
		shortest = duration.Shorter(shortest, info.Subscriptions[i].DefaultMessageTimeToLive)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	key := strings.ToLower(entity)
	known, ok := a.known[key]
	if !ok && len(a.known) == maxEntities {
		return
	}
	lately := a.cfg.Latest().Before(changed.Add(maxRequestTime))
	outstanding := ok && changed.After(known.last) || lately && !sent.IsZero() && sent.Before(changed)
	known.last = duration.Later(known.last, changed)
	if outstanding && shortest > 0 && changed.After(known.read) {
		known.read = changed
		a.addLocked(note{Entity: entity, Request: &request{Since: changed.Add(-clockMargin)}}, requestInterval)
	}
	a.known[key] = known
}

// RequestAll has entities read whose companions are lost: nobody watches their deadlines from the
// instant since on, by the clock of the broker.
func (a *Adopter) RequestAll(names []string, since time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range names {
		n := note{Entity: name, Request: &request{Since: since, All: true}}
		delete(a.series, n.key()) // its note is lost as well
		a.addLocked(n, requestInterval)
	}
}

// addLocked adds the series that n begins, or changes its interval.
func (a *Adopter) addLocked(n note, every time.Duration) {
	if s := a.series[n.key()]; s != nil {
		s.every = every
		return
	}
	if len(a.series) == maxEntities {
		return
	}
	n.Turn = 1
	a.series[n.key()] = &series{first: n, every: every}
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// Run writes missing notes until ctx ends.
func (a *Adopter) Run(ctx context.Context) {
	// Workers that start together, or that notice a change together, do not look together.
	jitter := func() time.Duration { return time.Second + rand.N(2*time.Second) }
	for wait := jitter(); ; {
		select {
		case <-time.After(wait):
			lost, longest, next := a.lost(time.Now())
			if err := a.begin(ctx, lost, longest); err != nil && ctx.Err() == nil {
				a.cfg.Log.Warn("adopt passes not scheduled", zap.Int("entities", len(lost)), zap.Duration("retry_in", next), zap.Error(err))
			}
			wait = next
		case <-a.changed:
			wait = jitter()
		case <-ctx.Done():
			return
		}
	}
}

// lost returns the first notes of the series whose note is missing, the longest of their intervals,
// and when to check again. It drops requests that are done.
func (a *Adopter) lost(now time.Time) (lost []note, longest, next time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.series, func(_ string, s *series) bool {
		return !s.seen.IsZero() && s.first.Request.isOver(a.cfg.Latest())
	})
	next = time.Hour
	for _, s := range a.series {
		next = min(next, s.every)
		if s.seen.IsZero() || now.Sub(s.seen) >= lostIntervals*s.every {
			lost, longest = append(lost, s.first), max(longest, s.every)
		}
	}
	return lost, longest, next
}

// begin writes the first notes of series, unless they have some.
func (a *Adopter) begin(ctx context.Context, lost []note, longest time.Duration) error {
	if len(lost) == 0 {
		return nil
	}
	now := a.cfg.Scheduler.Now()
	hasNote, err := a.readNotes(ctx, now, longest)
	if err != nil {
		return err
	}
	for _, n := range lost {
		found, err := hasNote(ctx, n.prefix())
		if err == nil && !found {
			err = a.write(ctx, n, now.Time)
		}
		if err != nil {
			return err
		}
		a.change(n, func(s *series) { s.seen = time.Now() })
	}
	return nil
}

// change changes the series of a note, if there is one.
func (a *Adopter) change(n note, change func(*series)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.series[n.key()]; s != nil {
		change(s)
	}
}

// admit reports whether to run the pass of a note that is due: this worker adopts its entity, and
// no other note continues. Any worker runs what was requested.
func (a *Adopter) admit(n note, now time.Time) (every time.Duration, ok bool) {
	if n.Request != nil {
		a.mu.Lock()
		a.addLocked(note{Entity: n.Entity, Request: n.Request}, requestInterval)
		a.mu.Unlock()
	}
	a.change(n, func(s *series) {
		every, ok = s.every, s.turn < n.Turn || now.Sub(s.seen) >= twinIntervals*s.every
		if ok {
			s.turn, s.seen = n.Turn, now
		}
	})
	return every, ok
}

// Pass runs the pass of a note that is due, writes the next note, and settles l.
func (a *Adopter) Pass(ctx context.Context, l *intake.Lease) {
	a.passing <- struct{}{}
	defer func() { <-a.passing }()
	settle := l.Complete
	n, err := parseNote(l.Body)
	if err != nil {
		a.cfg.Log.Warn("adopt note refused: it is kept as a dead letter", zap.String("monitor_queue", l.Queue), zap.String("message_id", l.ID), zap.Error(err))
		settle = func(ctx context.Context) error { return l.DeadLetter(ctx, intake.Malformed, err.Error()) }
	} else if every, ok := a.admit(n, time.Now()); !ok {
		a.cfg.Log.Info("adopt note dropped: this monitor does not adopt its entity, or another note does", zap.String("work_queue", n.Entity))
	} else if err := a.pass(ctx, n, every); err != nil {
		a.cfg.Log.Warn("adopt note not rewritten: the pass is repeated", zap.String("work_queue", n.Entity), zap.Error(err))
		a.change(n, func(s *series) { s.turn = n.Turn - 1 })
		l.LetGo()
		return
	}
	if err := settle(ctx); err != nil {
		a.cfg.Log.Warn("adopt note not settled: it comes back", zap.String("monitor_queue", l.Queue), zap.Error(err))
	}
}

// pass runs the pass of a note, and writes the next note.
func (a *Adopter) pass(ctx context.Context, n note, every time.Duration) error {
	p := &pass{a: a, entity: n.Entity, request: n.Request, positions: n.Positions}
	began := a.cfg.Latest()
	err := p.run(ctx)
	due := began.Add(every)
	if err != nil {
		a.cfg.Log.Warn("adopt pass failed", zap.String("work_queue", n.Entity), zap.Duration("retry_in", every), zap.Error(err))
	} else if p.more {
		due = a.cfg.Latest().Add(min(rest, every))
	}
	if n.Request.isDone(began, p.more || err != nil) {
		return nil
	}
	n.Turn++
	n.Positions = p.positions
	return a.write(ctx, n, due)
}
