// SPDX-License-Identifier: Apache-2.0

// Package adopt gives companions to messages that have none, or one that is due too late. A note on
// the monitor queue keeps how far an entity has been read. The worker that receives it runs a pass:
// it reads on from there, writes companions, and writes the next note. So several workers read an
// entity once, and a restart continues where they were.
//
// Such a series of passes is for an adopted entity, or for an entity whose companions were lost
// with the monitor queue. After a change of settings nothing is read: a pass writes companions over
// the windows in which senders may not have known.
package adopt

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"overdue/internal/operations"
	"overdue/internal/redisstore"
	"overdue/internal/servicebus/duration"
	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/link"
	"overdue/monitor/intake"
	"overdue/monitor/judge"
	"overdue/monitor/search"
	"overdue/scheduler"

	"go.uber.org/zap"
)

const (
	// maxPasses bounds the passes that run at once: all entities may be requested together.
	maxPasses = 16
	// senderLag is how long senders may go by former settings.
	senderLag = entities.DefaultKeepFor
)

// An Entity is a queue or topic whose messages get companions although they bypassed the endpoints.
type Entity struct {
	Entity string
	Every  time.Duration // how often it is read for new messages
}

// Config configures an Adopter. Describe and Notes may be nil.
type Config struct {
	Links        *link.Namespace
	Scheduler    *scheduler.Scheduler // writes companions and notes
	MonitorQueue string
	Notes        func(ctx context.Context, prefix string, f func(redisstore.Item)) error // where the monitor queue keeps none
	Settings     func(ctx context.Context, name string) judge.Settings
	Describe     func(ctx context.Context, name string, since time.Time) (entities.Info, error)
	Operations   *operations.Counter
	Log          *zap.Logger
	Latest       func() time.Time         // the broker's clock has not reached it, or just now
	Adopted      func(path string, n int) // n messages have got companions
}

// An Adopter runs the passes of a worker.
type Adopter struct {
	cfg     Config
	passing chan struct{} // one token for each pass
	refused sync.Map      // paths whose refusal was logged

	mu        sync.Mutex
	adopted   map[string]*series   // by the prefix of their notes
	requested []note               // to be written
	changed   map[string]time.Time // by lower-case name: when its settings were last changed
}

// series is the passes over an adopted entity, as a worker knows them.
type series struct {
	first note // begins it
	every time.Duration
	turn  int64
	seen  time.Time // by our clock: when a note, of that turn, was here; zero: there is none yet
}

// isLost reports whether it is time to look for a note of s: none was here for ten intervals.
func (s *series) isLost() bool {
	return s.seen.IsZero() || time.Since(s.seen) >= 10*s.every
}

// New makes an Adopter without entities.
func New(cfg Config) *Adopter {
	return &Adopter{cfg: cfg, passing: make(chan struct{}, maxPasses), changed: map[string]time.Time{}}
}

// Set replaces the adopted entities. Those that stay continue where they are.
func (a *Adopter) Set(all []Entity) {
	a.mu.Lock()
	defer a.mu.Unlock()
	adopted := map[string]*series{}
	for _, e := range all {
		n := note{Entity: e.Entity, Turn: 1}
		s := cmp.Or(a.adopted[n.prefix()], &series{first: n})
		s.every = max(e.Every, time.Second)
		adopted[n.prefix()] = s
	}
	a.adopted = adopted
}

// Saw takes the description of a queue or topic. If its settings have changed since the last one,
// or a moment ago, senders may not know that for a while. Their companions are due by a default
// time to live that does not hold any more.
func (a *Adopter) Saw(entity string, info *entities.Info) {
	all := append([]entities.Subscription{{
		CreatedAt:                info.CreatedAt,
		UpdatedAt:                info.UpdatedAt,
		DefaultMessageTimeToLive: info.DefaultMessageTimeToLive,
	}}, info.Subscriptions...)
	key := strings.ToLower(entity)
	a.mu.Lock()
	defer a.mu.Unlock()
	last, isKnown := a.changed[key]
	latest, first, shortest := last, search.Forever, time.Duration(0)
	for _, s := range all {
		isNew := s.UpdatedAt.After(last)
		if !isKnown {
			isNew = s.UpdatedAt.After(s.CreatedAt) && a.cfg.Latest().Sub(s.UpdatedAt).Abs() < senderLag
		}
		if isNew && s.UpdatedAt.Before(first) {
			first = s.UpdatedAt
		}
		latest = duration.Later(latest, s.UpdatedAt)
		shortest = duration.Shorter(shortest, s.DefaultMessageTimeToLive)
	}
	if first != search.Forever && shortest > 0 {
		a.requested = append(a.requested, note{Entity: entity, Turn: 1, Request: &request{Since: sinceChange(first)}})
	}
	if !latest.IsZero() {
		a.changed[key] = latest
	}
}

// sinceChange returns the least stamp of messages that have the settings of that change.
func sinceChange(at time.Time) time.Time {
	return at.Add(-search.WindowMargin).Truncate(search.StampPrecision)
}

// RequestAll has entities read whose companions are lost: nobody watches their deadlines from the
// instant since on, by the clock of the broker.
func (a *Adopter) RequestAll(names []string, since time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range names {
		a.requested = append(a.requested, note{Entity: name, Turn: 1, Request: &request{Since: since, All: true}})
	}
}

// Run writes missing notes until ctx ends.
func (a *Adopter) Run(ctx context.Context) {
	for wait := 2 * time.Second; ; {
		select {
		case <-time.After(wait/2 + rand.N(wait)): // workers that start together do not look together
		case <-ctx.Done():
			return
		}
		wait = 2 * time.Second
		if err := a.begin(ctx); err != nil && ctx.Err() == nil {
			wait = 10 * time.Second
			a.cfg.Log.Warn("adopt passes not scheduled", zap.Duration("retry_in", wait), zap.Error(err))
		}
	}
}

// begin writes the notes that were requested, and the first ones of series that are lost.
func (a *Adopter) begin(ctx context.Context) error {
	a.mu.Lock()
	missing, longest := slices.Clone(a.requested), senderLag
	for _, s := range a.adopted {
		if s.isLost() {
			missing, longest = append(missing, s.first), max(longest, s.every)
		}
	}
	a.mu.Unlock()
	if len(missing) == 0 {
		return nil
	}
	found, err := a.findNotes(ctx, longest)
	for _, n := range missing {
		if err == nil && !found[n.prefix()] {
			err = a.write(ctx, n, a.cfg.Scheduler.Now().Time)
		}
		if err != nil {
			return err
		}
		found[n.prefix()] = true // it may be requested twice
		a.sawNote(n, 0)
	}
	return nil
}

// sawNote notes that there is a note behind that turn. A request needs nothing else from its
// worker.
func (a *Adopter) sawNote(n note, turn int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.adopted[n.prefix()]; s != nil {
		s.turn, s.seen = turn, time.Now()
	}
	a.requested = slices.DeleteFunc(a.requested, func(r note) bool { return r.prefix() == n.prefix() })
}

// admit reports whether to run the pass of a note that is due: this worker adopts its entity, and
// no other note continues. Any worker runs what was requested.
func (a *Adopter) admit(n note) (every time.Duration, ok bool) {
	if n.Request != nil {
		return senderLag, true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.adopted[n.prefix()]
	if s == nil {
		return 0, false
	}
	return s.every, s.turn < n.Turn || s.isLost()
}

// Pass runs the pass of a note that is due, writes the next note, and settles l.
func (a *Adopter) Pass(ctx context.Context, l *intake.Lease) {
	a.passing <- struct{}{}
	defer func() { <-a.passing }()
	n, err := parseNote(l.Body)
	every, ok := a.admit(n)
	log := a.cfg.Log.With(zap.String("message_id", l.ID), zap.String("work_queue", n.Entity), zap.String("monitor_queue", l.Queue))
	switch {
	case err != nil:
		log.Warn("adopt note refused: it is kept as a dead letter", zap.Error(err))
		l.DeadLetter(ctx, intake.Malformed, err.Error())
	case !ok:
		log.Info("adopt note dropped: this monitor does not adopt its entity, or another note does")
		l.Complete(ctx)
	default:
		if err := a.pass(ctx, n, every); err != nil {
			log.Warn("adopt note not rewritten: it comes back", zap.Error(err))
			l.LetGo()
			return
		}
		a.sawNote(n, n.Turn)
		l.Complete(ctx)
	}
}

// pass runs the pass of a note, and writes the next note.
func (a *Adopter) pass(ctx context.Context, n note, every time.Duration) error {
	p := &pass{Adopter: a, note: n}
	began := a.cfg.Latest()
	wait, err := every, p.run(ctx)
	switch {
	case err != nil:
		wait = max(every/10, time.Second)
		a.cfg.Log.Warn("adopt pass failed", zap.String("work_queue", n.Entity), zap.Duration("retry_in", wait), zap.Error(err))
	case p.more:
		wait = time.Second
	case n.Request.isOver(began):
		return nil
	}
	p.Turn++
	return a.write(ctx, p.note, a.cfg.Latest().Add(wait))
}
