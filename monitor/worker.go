// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"overdue/internal/sblink"
	"overdue/scheduler"

	"github.com/cenkalti/backoff/v5"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// Config holds the settings of a Worker. Links, Scheduler and MonitorQueue
// are needed.
type Config struct {
	Links        *sblink.Namespace
	Scheduler    *scheduler.Scheduler // writes companions anew
	MonitorQueue string
	Namespace    string                       // names the source of events: sb://<namespace>/<entity>
	Settings     func(entity string) Settings // nil: all entities have the zero Settings
	Alerters     []Alerter
	Log          *zap.Logger           // nil: none
	Registerer   prometheus.Registerer // nil: none
}

// Settings is what is known of an entity. The zero value means nothing is.
type Settings struct {
	Strategy                 string        // "auto" or "", "native", "scan"
	Deadline                 time.Duration // of messages that state none; 0 = none
	DefaultMessageTimeToLive time.Duration // caps the messages' own; 0 = unlimited or unknown
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
	cfg     Config
	log     *zap.Logger
	metrics *metrics
	clock   brokerClock
	told    toldEvents

	attached atomic.Bool

	mu       sync.Mutex
	entities map[string]*entity // by lower-case name; each has a goroutine while it is in the map
	room     chan struct{}      // one token for each companion in hand
	running  sync.WaitGroup     // entities, tellers and settlements
	last     *sblink.Receiver   // the link that was open when the worker was stopped; of Run's goroutine
}

// New makes a Worker. Run starts it.
func New(cfg Config) (*Worker, error) {
	if cfg.Links == nil || cfg.Scheduler == nil || cfg.MonitorQueue == "" {
		return nil, errors.New("monitor: links, a scheduler and the name of the monitor queue are needed")
	}
	if cfg.Settings == nil {
		cfg.Settings = func(string) Settings { return Settings{} }
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	return &Worker{
		cfg: cfg, log: cfg.Log, metrics: newMetrics(cfg.Registerer),
		entities: map[string]*entity{}, room: make(chan struct{}, maxHeld),
	}, nil
}

// Attached reports whether the monitor queue could be reached when it was last tried.
func (w *Worker) Attached() bool { return w.attached.Load() }

// Run receives companions and makes passes until ctx ends. Then it takes no more,
// gives the passes in hand time to end, hands back what it still holds and returns nil.
func (w *Worker) Run(ctx context.Context) error {
	// Work in hand outlives ctx by the grace.
	work, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	retry := backoff.NewExponentialBackOff()
	retry.InitialInterval, retry.MaxInterval = 100*time.Millisecond, 15*time.Second
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
// room: else messages that consumers hold would keep others from being looked at.
func (w *Worker) crowded() bool { return len(w.room) > maxHeld/2+creditWindow }

// take hands a companion to the goroutine of its entity. What cannot be read goes to the
// monitor queue's dead-letter queue, with the reason.
func (w *Worker) take(work context.Context, l *lease) {
	w.clock.observe(l.enqueuedTime())
	c, err := scheduler.ParseCompanion(l.message.GetData())
	if err == nil && c.Kind == scheduler.KindSlot {
		err = errors.New("companions of kind slot are not understood by this version")
	}
	h := &held{w: w, lease: l, companion: c, until: holdUntil(l, w.clock.now())}
	if err != nil {
		w.log.Warn("companion refused", zap.String("message_id", l.id()), zap.Error(err))
		// A flood of them must not keep the good ones waiting.
		w.running.Go(func() { h.deadLetter(work, reasonMalformed, err.Error()) })
		return
	}
	watches := h.split()
	w.metrics.outstanding(c.Entity, len(watches))
	key := strings.ToLower(c.Entity)
	w.mu.Lock()
	e := w.entities[key]
	if e == nil {
		e = newEntity(w, key, c.Entity)
		w.entities[key] = e
		w.running.Go(func() { e.run(work) })
	}
	e.inbox = append(e.inbox, watches...)
	w.mu.Unlock()
	e.poke()
}

// stop lets the passes in hand end, then hands back the companions that are left.
func (w *Worker) stop(work context.Context, stopWork context.CancelFunc) {
	w.attached.Store(false)
	w.mu.Lock()
	for _, e := range w.entities {
		e.stopping.Store(true)
		e.poke()
	}
	w.mu.Unlock()
	ended := make(chan struct{})
	go func() {
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
