// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"overdue/internal/broker"
	"overdue/internal/broker/directory"
	"overdue/internal/broker/queue"
	"overdue/internal/broker/store"
	"overdue/internal/config"
)

// A brokerDirectory is broker.directory, open for the embedded broker. nil: there is none.
//
// While its disk is full or has failed, sends and settlements are refused, and reads go on. The
// process is not ready then, and it stays: on a full disk it goes on by itself. After a failure
// people can still look at the messages, which a restart on a broken disk would end. Each outcome
// that a client has is on disk either way.
type brokerDirectory struct {
	*environment
	path    string
	store   *store.Store
	began   time.Time // of the start that loads it
	loaded  atomic.Bool
	metrics *storeMetrics
}

// openDirectory opens broker.directory, where it is set. It is closed after the broker, which is
// started later. On a full disk it waits for room until ctx ends.
func openDirectory(ctx context.Context, e *environment) (*brokerDirectory, error) {
	path := e.cfg.Broker.Directory
	if path == "" {
		return nil, nil
	}
	d := &brokerDirectory{
		environment: e,
		path:        path,
		began:       time.Now(),
		metrics:     newStoreMetrics(e.registry),
	}
	e.life.Background("trouble of the broker's directory", d.logTrouble)
	var err error
	if d.store, err = directory.Open(ctx, path, d.metrics); err != nil {
		return nil, d.startError(err)
	}
	e.life.Started("broker directory", d.close)
	d.metrics.show(e.registry, d.store)
	d.serveBackups()
	healthy := func(context.Context) error {
		if text := directory.DescribeTrouble(path, d.store.Trouble()); text != "" {
			return errors.New(text)
		}
		return nil
	}
	e.addReady("broker directory", healthy)
	e.addOutbound("broker directory", healthy)
	return d, nil
}

// startError is an error of a start, of the configuration if that names the wrong place.
func (d *brokerDirectory) startError(err error) error {
	misplaced := directory.IsMisplaced(err)
	if err = fmt.Errorf("%s: %w", d.cfg.At("broker.directory"), err); misplaced {
		return &config.Error{Err: err}
	}
	return err
}

// newBroker makes the embedded broker, with what the directory holds if there is one.
func (d *brokerDirectory) newBroker(cfg broker.Config) (*broker.Broker, error) {
	if d != nil {
		cfg.Disk = d.store
	}
	b, err := broker.New(cfg)
	switch {
	case d != nil && (errors.Is(err, store.ErrDamaged) || errors.Is(err, broker.ErrDamaged)):
		return nil, d.startError(directory.Explain(d.path, err))
	case err != nil:
		return nil, &config.Error{Err: fmt.Errorf("the embedded broker cannot be made: %w", err)}
	}
	if d != nil {
		d.logLoaded(b)
	}
	return b, nil
}

// logLoaded says what was found, and what the configuration wants to have otherwise.
func (d *brokerDirectory) logLoaded(b *broker.Broker) {
	d.loaded.Store(true)
	took := time.Since(d.began)
	d.metrics.loadSeconds.Set(took.Seconds())
	for _, difference := range b.Differences() {
		// It is in the message, since equal messages are sampled.
		d.log.Warn("the broker's directory is not as configured: "+difference, zap.String("directory", d.path))
	}
	d.log.Info("the embedded broker has loaded its directory", zap.String("directory", d.path), zap.Int("entities", len(b.Default().Entities())),
		zap.Int("messages", b.Held(func(string) bool { return false })), zap.Duration("took", took))
}

// serveBackups lets `overdue broker backup` copy the directory. Some file systems have no sockets;
// then the broker works all the same.
func (d *brokerDirectory) serveBackups() {
	s, err := directory.NewBackupServer(d.path, d.store)
	if err != nil {
		d.log.Warn("the broker's directory can be copied only while no process runs on it", zap.String("directory", d.path), zap.Error(err))
		return
	}
	d.life.Run("backups of the broker's directory", s.Serve, func(context.Context) error { return s.Close() })
}

// logTrouble logs the begin and the end of trouble until ctx ends.
func (d *brokerDirectory) logTrouble(ctx context.Context) error {
	var logged error
	for {
		select {
		case <-d.metrics.troubled:
		case <-ctx.Done():
			return nil
		}
		err := d.metrics.trouble()
		switch {
		case err == nil && logged != nil:
			d.log.Info("the broker's directory is written again", zap.String("directory", d.path))
		case err != nil && !errors.Is(err, logged): // otherwise it has begun and ended
			d.log.Error("the broker's directory cannot be written", zap.String("directory", d.path),
				zap.String("error", d.describe(err)))
		}
		logged = err
	}
}

// describe says what trouble means for clients. Before the directory is loaded nobody is answered.
func (d *brokerDirectory) describe(err error) string {
	if errors.Is(err, queue.ErrNoRoom) && !d.loaded.Load() {
		return fmt.Sprintf("the disk of %s is full: the broker does not start until there is room", d.path)
	}
	return directory.DescribeTrouble(d.path, err)
}

func (d *brokerDirectory) close(context.Context) error {
	if err := d.store.Close(); err != nil {
		return fmt.Errorf("%w; what the broker acknowledged is in it, other changes may be missing", directory.Explain(d.path, err))
	}
	return nil
}

// storeMetrics hear what a store does.
type storeMetrics struct {
	commits     prometheus.Counter
	changes     prometheus.Histogram
	seconds     prometheus.Histogram
	loadSeconds prometheus.Gauge
	troubled    wakeup
	latest      atomic.Pointer[error] // nil: there was no trouble
}

func newStoreMetrics(r prometheus.Registerer) *storeMetrics {
	m := &storeMetrics{
		commits: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "overdue_broker_store_commits_total", Help: "Commits of the embedded broker to the disk of `broker.directory`.",
		}),
		changes: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "overdue_broker_store_commit_changes", Help: "Records that one commit wrote or deleted.",
			Buckets: []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000},
		}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "overdue_broker_store_commit_seconds", Help: "How long one commit took, the wait for the disk included.",
			Buckets: []float64{.0002, .0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5},
		}),
		loadSeconds: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "overdue_broker_store_load_seconds", Help: "How long the start took to open and to load the directory.",
		}),
		troubled: newWakeup(),
	}
	r.MustRegister(m.commits, m.changes, m.seconds, m.loadSeconds)
	return m
}

// show adds what is asked of the store when somebody wants to know.
func (m *storeMetrics) show(r prometheus.Registerer, s *store.Store) {
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "overdue_broker_store_bytes", Help: "How much the files of the directory hold; NaN while they cannot be read.",
	}, func() float64 {
		n, err := s.Bytes()
		if err != nil {
			return math.NaN()
		}
		return float64(n)
	}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "overdue_broker_store_trouble", Help: "1 while the disk is full or has failed, so that what is sent and settled is refused; 0 otherwise.",
		}, func() float64 { return asNumber(s.Trouble() != nil) }))
}

// Committed implements store.Observer.
func (m *storeMetrics) Committed(changes int, took time.Duration) {
	m.commits.Inc()
	m.changes.Observe(float64(changes))
	m.seconds.Observe(took.Seconds())
}

// Troubled implements store.Observer.
func (m *storeMetrics) Troubled(err error) {
	m.latest.Store(&err)
	m.troubled.signal()
}

func (m *storeMetrics) trouble() error {
	if err := m.latest.Load(); err != nil {
		return *err
	}
	return nil
}
