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
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"overdue/internal/operations"
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
	// lostIntervals is the number of intervals after which a series counts as lost of which no note
	// was seen, and a request is given up that fails. A failed pass is repeated after so small a part
	// of one.
	lostIntervals = 10
	// maxPasses bounds the passes that run at once: all entities may be requested together.
	maxPasses = 16
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
}

// An Adopter runs the passes of a worker.
type Adopter struct {
	cfg     Config
	passing chan struct{} // one token for each pass
	refused sync.Map      // paths whose refusal was logged

	mu     sync.Mutex
	series map[string]*series // by the prefix of their notes
	known  map[string]change  // by lower-case name: the last one
}

// series is the passes over an adopted entity, as a worker knows them; or a request whose note has
// not been written yet.
type series struct {
	first note // begins it
	turn  int64
	seen  time.Time // by our clock: when a note, of that turn, was here; zero: there is none yet
	every time.Duration
}

// isLost reports whether it is time to look for a note of s.
func (s *series) isLost() bool {
	return s.seen.IsZero() || time.Since(s.seen) >= lostIntervals*s.every
}

// change is a change of the settings of an entity.
type change struct {
	at        time.Time // by the clock of the namespace
	requested bool      // there is a request for it
}

// New makes an Adopter without entities.
func New(cfg Config) *Adopter {
	return &Adopter{
		cfg:     cfg,
		passing: make(chan struct{}, maxPasses),
		series:  map[string]*series{},
		known:   map[string]change{},
	}
}

// Set replaces the adopted entities. Those that stay continue where they are.
func (a *Adopter) Set(all []Entity) {
	a.mu.Lock()
	defer a.mu.Unlock()
	adopted := map[string]bool{}
	for _, e := range all {
		n := note{Entity: e.Entity}
		adopted[n.prefix()] = true
		a.addLocked(n, max(e.Every, time.Second))
	}
	maps.DeleteFunc(a.series, func(key string, s *series) bool { return s.first.Request == nil && !adopted[key] })
}

// Saw takes the description of a queue or topic. sent is when the first message was sent whose
// companion is in hand, by the clock of the broker; zero: unknown. If the settings were changed
// since the last call, or lately since then, senders may not know that for a while: their
// companions are due by a default time to live that does not hold any more.
func (a *Adopter) Saw(entity string, info *entities.Info, sent time.Time) {
	stamps, shortest := []time.Time{info.UpdatedAt}, info.DefaultMessageTimeToLive
	for i := range info.Subscriptions {
		stamps = append(stamps, info.Subscriptions[i].UpdatedAt)
		shortest = duration.Shorter(shortest, info.Subscriptions[i].DefaultMessageTimeToLive)
	}
	latest := slices.MaxFunc(stamps, time.Time.Compare)
	a.mu.Lock()
	defer a.mu.Unlock()
	key := strings.ToLower(entity)
	last, known := a.known[key]
	r := &request{Since: sinceChange(latest)}
	outstanding := !sent.IsZero() && sent.Before(r.Since) && !r.isGivenUp(a.cfg.Latest())
	if latest.After(last.at) {
		stamps = slices.DeleteFunc(stamps, func(at time.Time) bool { return !at.After(last.at) })
		if known {
			outstanding, r.Since = true, sinceChange(slices.MinFunc(stamps, time.Time.Compare))
		}
		last = change{at: latest}
	}
	if outstanding && shortest > 0 && !last.requested {
		last.requested = true
		a.addLocked(note{Entity: entity, Request: r}, senderLag)
	}
	a.known[key] = last
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
		a.addLocked(note{Entity: name, Request: &request{Since: since, All: true}}, senderLag)
	}
}

// addLocked adds the series that n begins, or changes its interval.
func (a *Adopter) addLocked(n note, every time.Duration) {
	n.Turn = 1
	s := &series{first: n}
	if former := a.series[n.prefix()]; former != nil {
		s = former
	}
	s.every = every
	a.series[n.prefix()] = s
}

// Run writes missing notes until ctx ends.
func (a *Adopter) Run(ctx context.Context) {
	for pause := 2 * time.Second; ; {
		select {
		case <-time.After(pause/2 + rand.N(pause)): // workers that start together do not look together
		case <-ctx.Done():
			return
		}
		pause = 2 * time.Second
		if err := a.begin(ctx); err != nil && ctx.Err() == nil {
			pause = senderLag / lostIntervals
			a.cfg.Log.Warn("adopt passes not scheduled", zap.Duration("retry_in", pause), zap.Error(err))
		}
	}
}

// begin writes the first notes of the series whose note is missing.
func (a *Adopter) begin(ctx context.Context) error {
	var lost []note
	var longest time.Duration
	a.mu.Lock()
	for _, s := range a.series {
		if s.isLost() {
			lost, longest = append(lost, s.first), max(longest, s.every)
		}
	}
	a.mu.Unlock()
	if len(lost) == 0 {
		return nil
	}
	hasNote, err := a.readNotes(ctx, longest)
	for _, n := range lost {
		found := false
		if err == nil {
			found, err = hasNote(ctx, n.prefix())
		}
		if err == nil && !found {
			err = a.write(ctx, n, a.cfg.Scheduler.Now().Time)
		}
		if err != nil {
			return err
		}
		a.sawNote(n, 0)
	}
	return nil
}

// sawNote notes that there is a note behind that turn. A request needs nothing else from its
// worker.
func (a *Adopter) sawNote(n note, turn int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch s := a.series[n.prefix()]; {
	case s == nil:
	case n.Request != nil:
		delete(a.series, n.prefix())
	default:
		s.turn, s.seen = turn, time.Now()
	}
}

// admit reports whether to run the pass of a note that is due: this worker adopts its entity, and
// no other note continues. Any worker runs what was requested.
func (a *Adopter) admit(n note) (every time.Duration, ok bool) {
	if n.Request != nil {
		return senderLag, true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.series[n.prefix()]
	if s == nil {
		return 0, false
	}
	return s.every, s.turn < n.Turn || s.isLost()
}

// Pass runs the pass of a note that is due, writes the next note, and settles l.
func (a *Adopter) Pass(ctx context.Context, l *intake.Lease) {
	a.passing <- struct{}{}
	defer func() { <-a.passing }()
	settle := l.Complete
	n, err := parseNote(l.Body)
	log := a.cfg.Log.With(zap.String("message_id", l.ID), zap.String("work_queue", n.Entity))
	every, ok := a.admit(n)
	switch {
	case err != nil:
		log.Warn("adopt note refused: it is kept as a dead letter", zap.String("monitor_queue", l.Queue), zap.Error(err))
		settle = func(ctx context.Context) error { return l.DeadLetter(ctx, intake.Malformed, err.Error()) }
	case !ok:
		log.Info("adopt note dropped: this monitor does not adopt its entity, or another note does")
	default:
		if err := a.pass(ctx, n, every); err != nil {
			log.Warn("adopt note not rewritten: the pass is repeated", zap.Error(err))
			l.LetGo()
			return
		}
		a.sawNote(n, n.Turn)
	}
	if err := settle(ctx); err != nil {
		log.Warn("adopt note not settled: it comes back", zap.String("monitor_queue", l.Queue), zap.Error(err))
	}
}

// pass runs the pass of a note, and writes the next note.
func (a *Adopter) pass(ctx context.Context, n note, every time.Duration) error {
	p := &pass{a: a, entity: n.Entity, request: n.Request, positions: n.Positions}
	began := a.cfg.Latest()
	err := p.run(ctx)
	wait := every
	switch {
	case err != nil:
		wait = max(every/lostIntervals, time.Second)
		a.cfg.Log.Warn("adopt pass failed", zap.String("work_queue", n.Entity), zap.Duration("retry_in", wait), zap.Error(err))
	case p.more:
		wait = time.Second
	}
	isRead := !p.more && (err == nil || n.Request.isGivenUp(began))
	if isRead && n.Request.isOver(began) {
		return nil
	}
	n.Turn++
	n.Positions = p.positions
	return a.write(ctx, n, a.cfg.Latest().Add(wait))
}
