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
	"overdue/monitor/adopt"
	"overdue/monitor/judge"
	"overdue/monitor/notify"
	"overdue/scheduler"

	"github.com/cenkalti/backoff/v5"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// Config configures a Worker. Links, Scheduler and MonitorQueue are required.
type Config struct {
	Links        *link.Namespace
	Scheduler    *scheduler.Scheduler // rewrites companions
	MonitorQueue string
	Store        Store  // keeps the companions instead of the monitor queue; may be nil
	Namespace    string // host or host:port, for the source of events: see alert.SourceOf
	// Settings returns the settings of a queue or topic. It is called before every check, and may
	// block until ctx ends. nil: all entities have the zero Settings.
	Settings func(ctx context.Context, name string) Settings
	// Describe returns the description of a queue or topic, as it was at the instant since of our
	// clock or later. The zero instant accepts any age. Its errors are those of entities.Source.
	// nil: nothing is known of any entity.
	Describe   func(ctx context.Context, name string, since time.Time) (entities.Info, error)
	Alerters   []alert.Alerter
	Log        *zap.Logger           // nil: none
	Registerer prometheus.Registerer // nil: none
	Operations *operations.Counter   // nil: not counted
	Deadlines  *operations.Deadlines // nil: registered here
	Notified   Notified              // nil: this process is the only one
	Entities   []string              // monitored ones that are known from the start: their series are at 0
	Adopt      []adopt.Entity        // entities whose messages get companions although no endpoint saw them
}

// Settings is what an operator configures for an entity. The zero value configures nothing.
type Settings = judge.Settings

const (
	// maxHeld bounds the companions in hand. The others stay on the monitor queue.
	maxHeld = 5000
	// maxWatched bounds the messages in hand: those that are checked, and those whose events wait for
	// their sinks. Beyond it, a worker receives no companion until there are half as many.
	maxWatched = 250_000
	// stopGrace is how long a running check may take when the worker stops.
	stopGrace = 10 * time.Second
)

// A Worker receives the companions of one monitor queue and checks the messages that they name.
// Several workers may share a monitor queue: each companion is locked by one of them at a time.
type Worker struct {
	cfg      Config
	log      *zap.Logger
	metrics  *metrics
	clock    brokerClock
	notified notify.Record
	renewer  *link.Renewer // of the locks of companions in hand
	sinks    atomic.Pointer[sinks]
	claims   notify.Line // of events that are shared with other monitors
	states   entityStates
	adopter  *adopt.Adopter

	attached atomic.Bool
	outage   outage
	watching atomic.Int64  // watches that have not ended
	eased    chan struct{} // one token: there are no more than maxWatched/2

	mu       sync.Mutex
	stopping bool
	entities map[string]*entity // by lower-case path; each one runs while it is here
	room     chan struct{}      // one token for each companion in hand
	running  sync.WaitGroup     // entities, notifications and settlements
	last     *link.Receiver     // the link at the stop; used by Run only
	yielding yielding           // used by Run only
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
		cfg: cfg, log: cfg.Log, metrics: newMetrics(cfg.Registerer, cfg.Operations, cfg.Deadlines, cfg.Entities...),
		entities: map[string]*entity{}, eased: make(chan struct{}, 1), room: make(chan struct{}, maxHeld),
		claims: notify.Line{Budget: claimWait},
	}
	w.renewer = w.newRenewer()
	w.SetAlerters(cfg.Alerters)
	w.adopter = w.newAdopter()
	w.adopter.Set(cfg.Adopt)
	return w, nil
}

// Attached reports whether the last attempt reached the monitor queue.
func (w *Worker) Attached() bool { return w.attached.Load() }

// Run receives companions and checks their messages until ctx ends. Then it receives no more,
// gives running checks stopGrace to end, releases the companions that are left, and returns
// nil.
func (w *Worker) Run(ctx context.Context) error {
	// Running checks may outlive ctx by stopGrace.
	work, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	w.running.Go(func() { w.adopter.Run(ctx) })
	if w.cfg.Store != nil {
		w.claimFromStore(ctx, work)
		w.stop(work, stopWork)
		return nil
	}
	defer w.startRenewing(work)()
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
			say, first = w.log.Warn, false // once per loss, not per attempt
		}
		if time.Since(began) > retry.MaxInterval {
			retry.Reset() // it had worked for a while
		}
		wait := retry.NextBackOff()
		if link.Lost(err) {
			wait = reconnectEvery
			retry.Reset()
		}
		say("monitor queue unreachable: no deadline is checked", zap.String("monitor_queue", w.cfg.MonitorQueue), zap.Duration("retry_in", wait), zap.Error(err))
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
	w.stop(work, stopWork)
	return nil
}

// crowded reports whether so many companions are in hand that those that only wait must make
// room. Otherwise, messages that consumers hold would keep others from being checked.
func (w *Worker) crowded() bool { return len(w.room) > maxHeld/2+creditWindow }

// take hands a companion to the goroutine of its entity. A companion that cannot be parsed goes
// to the dead-letter queue of the monitor queue, with the reason.
func (w *Worker) take(work context.Context, l lease) {
	w.clock.observe(l.enqueuedTime())
	switch l.contentType() {
	case digestType:
		w.digest(work, l)
		return
	case adopt.NoteType:
		w.adoptPass(work, l)
		return
	}
	c, err := scheduler.ParseCompanion(l.body())
	h := &companion{w: w, lease: l, content: c, until: time.Now().Add(maxHold)}
	if err != nil {
		w.log.Warn("companion refused: it is kept as a dead letter", zap.String("monitor_queue", w.cfg.MonitorQueue), zap.String("message_id", l.id()), zap.Error(err))
		// A flood of them must not delay the valid ones.
		w.running.Go(func() { h.deadLetter(work, reasonMalformed, err.Error()) })
		return
	}
	watches := h.newWatches()
	w.metrics.outstanding(c.Entity, len(c.References))
	w.route(work, c.Entity, watches...)
}

// route hands watches to the goroutine of an entity, and starts that goroutine if there is
// none.
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
	if e.nudgesFirst.Load() { // here, since e may be busy with a check
		for _, wt := range watches {
			if !wt.isUnseen() {
				e.nudgeFor(work, wt)
			}
		}
	}
	w.mu.Unlock()
	e.wakeUp()
}

// stop lets running checks end, then releases the companions that are left.
func (w *Worker) stop(work context.Context, stopWork context.CancelFunc) {
	w.attached.Store(false)
	w.mu.Lock()
	w.stopping = true
	for _, e := range w.entities {
		e.stopping.Store(true)
		e.wakeUp()
	}
	w.mu.Unlock()
	defer time.AfterFunc(stopGrace/2, w.leaveEvents).Stop()
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
