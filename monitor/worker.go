// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"overdue/alert"
	"overdue/internal/operations"
	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/link"
	"overdue/scheduler"

	"github.com/cenkalti/backoff/v5"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// Config holds the settings of a Worker. Links, Scheduler and MonitorQueue
// are needed.
type Config struct {
	Links        *link.Namespace
	Scheduler    *scheduler.Scheduler // writes companions anew
	MonitorQueue string
	Store        Store  // has the companions, in the place of the monitor queue; nil: there is none
	Namespace    string // its address, host or host:port, for the source of events: see alert.SourceOf
	// Settings, of a queue or topic, is asked at every pass and may wait for what it does not know, until ctx ends. nil: all
	// entities have the zero Settings.
	Settings func(ctx context.Context, name string) Settings
	// Describe says how a queue or topic was made, as it was at the instant since of our clock or later; a zero one means
	// that what is remembered will do. Its errors are those of entities.Source. nil: nothing is known.
	Describe   func(ctx context.Context, name string, since time.Time) (entities.Info, error)
	Alerters   []alert.Alerter
	Log        *zap.Logger           // nil: none
	Registerer prometheus.Registerer // nil: none
	Operations *operations.Counter   // nil: they are not counted
	Deadlines  *operations.Deadlines // nil: made and registered here
	Notified   Notified              // nil: other processes are not asked
	Adopt      []Adoption            // whose messages get companions although they came through no endpoint
}

// Settings is what an operator says of an entity. The zero value means nothing.
type Settings struct {
	Strategy                 string          // "auto" or "", "native", "scan", "session"
	Deadline                 time.Duration   // of messages that state none; 0 = none
	CompleteWithin           time.Duration   // by when messages have to be settled for good that do not say so; 0 = no matter when
	WarnBefore               []time.Duration // how long before a deadline somebody wants to know that it is near
	DefaultMessageTimeToLive time.Duration   // caps the messages' own; 0 = unlimited or unknown

	defaultSince  time.Time // what was enqueued before, by the broker's clock, may have had another default; zero: not as far as is known
	defaultStated bool      // companions state the default of this very entity, not that of a topic for all of its subscriptions
}

const (
	// maxHeld bounds the companions in hand. More stay on the monitor queue, which is made for it.
	maxHeld = 5000
	// stopGrace is what a pass in hand gets to end when the worker stops.
	stopGrace = 10 * time.Second
)

// A Worker honours the companions of one monitor queue. Any number of workers may
// share it: each companion is locked by one of them at a time.
type Worker struct {
	cfg      Config
	log      *zap.Logger
	metrics  *metrics
	clock    brokerClock
	notified notifiedEvents
	sinks    atomic.Pointer[sinks]
	states   entityStates

	attached atomic.Bool
	outage   outage
	watching atomic.Int64 // watches that are not done

	mu               sync.Mutex
	stopping         bool
	adoptions        map[string]adoption // of what is adopted, by lower-case name
	adoptionsChanged chan struct{}       // one token: SetAdopted was called
	entities         map[string]*entity  // by lower-case path; each has a goroutine while it is in the map
	room             chan struct{}       // one token for each companion in hand
	running          sync.WaitGroup      // entities, tellers and settlements
	last             *link.Receiver      // the link that was open when the worker was stopped; of Run's goroutine
	yielding         yielding            // of Run's goroutine
}

// New makes a Worker. Run starts it.
func New(cfg Config) (*Worker, error) {
	if cfg.Links == nil || cfg.Scheduler == nil || cfg.MonitorQueue == "" {
		return nil, errors.New("monitor: Config needs Links, Scheduler and MonitorQueue")
	}
	if cfg.Settings == nil {
		cfg.Settings = func(context.Context, string) Settings { return Settings{} }
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	w := &Worker{
		cfg: cfg, log: cfg.Log, metrics: newMetrics(cfg.Registerer, cfg.Operations, cfg.Deadlines),
		entities: map[string]*entity{}, adoptionsChanged: make(chan struct{}, 1), room: make(chan struct{}, maxHeld),
	}
	w.SetAlerters(cfg.Alerters)
	w.SetAdopted(cfg.Adopt)
	return w, nil
}

// Attached reports whether the monitor queue could be reached when it was last tried.
func (w *Worker) Attached() bool { return w.attached.Load() }

// Run receives companions and makes passes until ctx ends. Then it takes no more,
// gives the passes in hand time to end, hands back what it still holds and returns nil.
func (w *Worker) Run(ctx context.Context) error {
	// Work in hand outlives ctx by the grace.
	work, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	w.running.Go(func() { w.runAdoptions(ctx) })
	if w.cfg.Store != nil {
		w.claimFromStore(ctx, work)
		w.stop(work, stopWork)
		return nil
	}
	retry := backoff.NewExponentialBackOff()
	retry.InitialInterval, retry.MaxInterval = 100*time.Millisecond, 5*time.Second
	for first := true; ctx.Err() == nil; {
		began := time.Now()
		err := w.receive(ctx, work)
		if ctx.Err() != nil {
			break
		}
		say := w.log.Debug
		if w.attached.Swap(false) || first {
			say, first = w.log.Warn, false // once for each loss, not for each try
		}
		if time.Since(began) > retry.MaxInterval {
			retry.Reset() // it was fine for a while
		}
		wait := retry.NextBackOff()
		if link.Lost(err) {
			wait = reconnectEvery
			retry.Reset()
		}
		say("monitor queue unreachable", zap.String("monitor_queue", w.cfg.MonitorQueue), zap.Duration("retry_in", wait), zap.Error(err))
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
	w.stop(work, stopWork)
	return nil
}

// crowded reports whether so many companions are in hand that those that only wait should make
// room: else messages that consumers hold would keep others from being checked.
func (w *Worker) crowded() bool { return len(w.room) > maxHeld/2+creditWindow }

// take hands a companion to the goroutine of its entity. What cannot be read goes to the
// monitor queue's dead-letter queue, with the reason.
func (w *Worker) take(work context.Context, l lease) {
	w.clock.observe(l.enqueuedTime())
	switch l.contentType() {
	case digestType:
		w.digest(work, l)
		return
	case adoptNoteType:
		w.adoptPass(work, l)
		return
	}
	c, err := scheduler.ParseCompanion(l.body())
	h := &companion{w: w, lease: l, content: c, until: holdUntil(l, w.clock.now())}
	if err != nil {
		w.log.Warn("companion refused", zap.String("message_id", l.id()), zap.Error(err))
		// A flood of them must not keep the good ones waiting.
		w.running.Go(func() { h.deadLetter(work, reasonMalformed, err.Error()) })
		return
	}
	watches := h.newWatches()
	w.metrics.outstanding(c.Entity, len(c.References))
	w.route(work, c.Entity, watches...)
}

// route hands watches to the goroutine of an entity.
func (w *Worker) route(work context.Context, path string, watches ...*watch) {
	key := strings.ToLower(path)
	w.mu.Lock()
	e := w.entities[key]
	if e == nil {
		e = newEntity(w, key, path)
		e.stopping.Store(w.stopping)
		w.entities[key] = e
		w.running.Go(func() { e.run(work) })
	}
	e.inbox = append(e.inbox, watches...)
	if e.nudgesFirst.Load() { // here, since e may be busy with a pass
		for _, wt := range watches {
			e.nudgeFor(work, wt)
		}
	}
	w.mu.Unlock()
	e.poke()
}

// stop lets the passes in hand end, then hands back the companions that are left.
func (w *Worker) stop(work context.Context, stopWork context.CancelFunc) {
	w.attached.Store(false)
	w.mu.Lock()
	w.stopping = true
	for _, e := range w.entities {
		e.stopping.Store(true)
		e.poke()
	}
	w.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		for _, g := range w.sinks.Load().groups {
			g.Close()
		}
		w.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(stopGrace):
		stopWork()
		<-ended
	}
	if w.last != nil {
		w.last.Close(work)
	}
}
