// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"overdue/alert"
	"overdue/internal/monitorqueue"
	"overdue/internal/operations"
	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/link"
	"overdue/monitor/adopt"
	"overdue/monitor/intake"
	"overdue/monitor/judge"
	"overdue/monitor/metrics"
	"overdue/monitor/mute"
	"overdue/monitor/notify"
	"overdue/scheduler"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// Config configures a Worker. Links, Scheduler and Queues are required.
type Config struct {
	Links     *link.Namespace
	Scheduler *scheduler.Scheduler // rewrites companions
	Queues    monitorqueue.Queues  // the monitor queues
	Store     intake.Store         // keeps the companions instead of the monitor queues; may be nil
	Namespace string               // host or host:port, for the source of events: see alert.SourceOf
	// Settings returns the settings of a queue or topic. It is called before every check, and may
	// block until ctx ends. nil: all entities have the zero Settings.
	Settings func(ctx context.Context, name string) Settings
	// Describe returns the description of a queue or topic, as it was at the instant since of our
	// clock or later. The zero instant accepts any age. Its errors are those of entities.Source.
	// nil: nothing is known of any entity.
	Describe func(ctx context.Context, name string, since time.Time) (entities.Info, error)
	// Labels returns the labels of a queue or topic for its events, see alert.EventData. nil: none.
	Labels     func(name string) map[string]string
	Alerters   []alert.Alerter
	Log        *zap.Logger           // nil: none
	Registerer prometheus.Registerer // nil: none
	Operations *operations.Counter   // nil: not counted
	Deadlines  *operations.Deadlines // nil: registered here
	Notified   notify.Shared         // nil: this process is the only one
	Mutes      notify.Mutes          // nil: nothing is muted
	Entities   []string              // monitored ones that are known from the start: their series are at 0
	Unknown    func(Unknown)         // gets each unknown verdict, and must not block; may be nil
	Known      func() []string       // further ones that may have companions; may be nil
	Adopt      []adopt.Entity        // entities whose messages get companions although no endpoint saw them

	Judged metrics.Judged // gets each verdict; may be nil
	// Lost gets how many messages of an entity lost their companions with a monitor queue that was
	// deleted, as far as this process wrote them, and with a negative number that so many have new
	// ones. It may be nil.
	Lost func(entity string, n int)
}

// Settings is what an operator configures for an entity. The zero value configures nothing.
type Settings = judge.Settings

// stopGrace is how long a running check may take when the worker stops.
const stopGrace = 10 * time.Second

// A Worker receives the companions of the monitor queues and checks the messages that they name.
// Several workers may share them: each companion is locked by one of them at a time.
type Worker struct {
	cfg      Config
	log      *zap.Logger
	metrics  *metrics.Metrics
	clock    judge.Clock
	notified notify.Record
	intake   *intake.Intake
	notifier *notify.Notifier
	adopter  *adopt.Adopter

	mu       sync.Mutex
	stopping bool
	isDown   bool               // there is no connection to the namespace
	entities map[string]*entity // by lower-case path, maxRemembered at most
	running  sync.WaitGroup     // entities, passes and notifications
}

// New makes a Worker. Run starts it.
func New(cfg Config) (*Worker, error) {
	if cfg.Links == nil || cfg.Scheduler == nil || cfg.Queues.Len() == 0 {
		return nil, errors.New("monitor: Config needs Links, Scheduler and Queues")
	}
	if cfg.Settings == nil {
		cfg.Settings = func(context.Context, string) Settings { return Settings{} }
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	w := &Worker{
		cfg:      cfg,
		log:      cfg.Log,
		metrics:  metrics.New(cfg.Registerer, cfg.Operations, cfg.Deadlines, cfg.Judged, cfg.Entities...),
		clock:    judge.Clock{Measured: cfg.Scheduler.Now},
		entities: map[string]*entity{},
	}
	w.intake = intake.New(intake.Config{
		Links:       cfg.Links,
		Scheduler:   cfg.Scheduler,
		Store:       cfg.Store,
		Queues:      cfg.Queues.Names(),
		Clock:       &w.clock,
		Take:        w.take,
		Outstanding: w.metrics.Outstanding,
		Recreated:   w.adoptUnwatched,
		Operations:  cfg.Operations,
		Log:         cfg.Log,
	})
	w.notifier = notify.New(notify.Config{
		Namespace: cfg.Namespace,
		Labels:    cfg.Labels,
		Record:    &w.notified,
		Shared:    cfg.Notified,
		Mutes:     cfg.Mutes,
		Scheduler: cfg.Scheduler,
		Now:       w.clock.Now,
		Yield:     w.intake.Yield,
		Begun:     w.metrics.Notified,
		Delivered: w.metrics.Alert,
		Log:       cfg.Log,
	})
	w.SetAlerters(cfg.Alerters)
	w.adopter = w.newAdopter()
	w.adopter.Set(cfg.Adopt)
	return w, nil
}

// Run receives companions and checks their messages until ctx ends. Then it receives no more,
// gives running checks stopGrace to end, releases the companions that are left, and returns
// nil.
func (w *Worker) Run(ctx context.Context) error {
	// Running checks may outlive ctx by stopGrace.
	work, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	w.running.Go(func() { w.adopter.Run(ctx) })
	w.running.Go(func() { w.showSubscriptions(ctx) })
	w.intake.Run(ctx, work)
	w.stop(stopWork)
	return nil
}

// ReceiveAlso receives the companions of one more monitor queue, see Intake.ReceiveAlso.
func (w *Worker) ReceiveAlso(queue string) { w.intake.ReceiveAlso(queue) }

// SetAlerters replaces the sinks, see Notifier.SetSinks. It MUST NOT be called concurrently.
func (w *Worker) SetAlerters(all []alert.Alerter) {
	for _, a := range all {
		w.metrics.ShowSink(a.Name())
	}
	w.notifier.SetSinks(all)
}

// Unattached returns the monitor queues, or the store, that the last attempt did not reach.
func (w *Worker) Unattached() []string { return w.intake.Unattached() }

// take hands a companion to the goroutine of its entity.
func (w *Worker) take(work context.Context, l *intake.Lease) {
	switch l.ContentType {
	case notify.DigestType:
		w.running.Add(1)
		w.notifier.Digest(work, l, w.running.Done)
		return
	case adopt.NoteType:
		w.running.Go(func() { w.adopter.Pass(work, l) })
		return
	case mute.NoteType: // it is over, and says nothing any more
		w.running.Go(func() { l.Complete(work) })
		return
	}
	if c := w.intake.Open(work, l); c != nil {
		w.route(work, c.Content.Entity, w.rulesOf(work, c)...)
	}
}

// route hands rules to the goroutine of an entity.
func (w *Worker) route(work context.Context, path string, rules ...*rule) {
	if len(rules) > 0 {
		w.entityOf(path).put(work, rules)
	}
}

func (w *Worker) entityOf(path string) *entity {
	key := strings.ToLower(path)
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.entities[key]
	if e != nil {
		return e
	}
	if len(w.entities) == maxRemembered {
		for other, idle := range w.entities {
			if !idle.inbox.isRunning() {
				delete(w.entities, other) // what was known of it is found out again
				break
			}
		}
	}
	e = newEntity(w, path)
	w.entities[key] = e
	return e
}

// Paths returns the paths of the entities whose messages were checked lately.
func (w *Worker) Paths() (paths []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.entities {
		paths = append(paths, e.name)
	}
	return paths
}

func (w *Worker) isStopping() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stopping
}

// stop lets running checks end, then releases the companions that are left.
func (w *Worker) stop(stopWork context.CancelFunc) {
	w.mu.Lock()
	w.stopping = true
	for _, e := range w.entities {
		e.inbox.wakeUp()
	}
	w.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		w.notifier.Close()
		w.running.Wait()
		w.intake.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(stopGrace):
		stopWork()
		<-ended
	}
}

// newAdopter makes the Adopter of w. It writes companions and notes to the monitor queue.
func (w *Worker) newAdopter() *adopt.Adopter {
	cfg := adopt.Config{
		Links: w.cfg.Links, Scheduler: w.cfg.Scheduler, MonitorQueue: w.cfg.Queues.Name(0),
		Settings: w.cfg.Settings, Describe: w.cfg.Describe,
		Operations: w.metrics.Operations, Log: w.log,
		Adopted: func(entity string, n int) {
			w.metrics.Adopted(entity, n)
			if w.cfg.Lost != nil {
				w.cfg.Lost(entity, -n)
			}
		},
		Latest: w.clock.Latest,
	}
	if w.cfg.Store != nil {
		cfg.Notes = w.cfg.Store.Notes
	}
	return adopt.New(cfg)
}

// adoptUnwatched has the entities read whose companions were on a monitor queue that was deleted at
// the instant since, by the clock of the broker, and recreated.
func (w *Worker) adoptUnwatched(queue string, since time.Time) {
	if w.cfg.Lost != nil {
		for entity, n := range w.cfg.Scheduler.Waiting(queue, since) {
			w.cfg.Lost(entity, n)
		}
	}
	known := slices.Clone(w.cfg.Entities)
	if w.cfg.Known != nil {
		known = append(known, w.cfg.Known()...)
	}
	w.adopter.RequestAll(slices.DeleteFunc(known, func(name string) bool { return w.cfg.Queues.For(name) != queue }), since)
}

// Described takes the description of a queue or topic that any component has read.
func (w *Worker) Described(name string, info *entities.Info) {
	w.adopter.Saw(name, info)
}

// SetAdopted replaces the adopted entities. Those that stay continue where they are.
func (w *Worker) SetAdopted(all []adopt.Entity) { w.adopter.Set(all) }

// OutstandingDeadlines returns how many deadlines of each entity have come and have no verdict yet.
func (w *Worker) OutstandingDeadlines() map[string]int64 { return w.metrics.InHand() }
