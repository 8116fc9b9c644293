// SPDX-License-Identifier: Apache-2.0

package app

import (
	"math"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"overdue/internal/config"
	"overdue/internal/lifecycle"
	"overdue/internal/version"
	"overdue/scheduler"
)

// newRegistry is a registry with the metrics of the process itself. The components add theirs.
func newRegistry(r config.Role, namespace string) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "overdue_build_info",
		Help: "Always 1; the labels say what runs, role is the command: run, proxy, monitor or broker. Its namespace is embedded where the process brings its own.",
	}, []string{"role", "version", "revision", "goversion", namespaceLabel})
	build.WithLabelValues(r.Name, version.String(), version.Revision(), runtime.Version(), namespace).Set(1)
	registry.MustRegister(build, goCollector{collectors.NewGoCollector()}, collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// A goCollector is the collector of the Go runtime without the gauge go_memstats_alloc_bytes. In
// OpenMetrics, that and the counter go_memstats_alloc_bytes_total are one family stated twice.
// go_memstats_heap_alloc_bytes has the same value.
type goCollector struct{ prometheus.Collector }

// Collect implements prometheus.Collector.
func (c goCollector) Collect(ch chan<- prometheus.Metric) {
	all := make(chan prometheus.Metric)
	go func() {
		defer close(all)
		c.Collector.Collect(all)
	}()
	for m := range all {
		if !strings.Contains(m.Desc().String(), `"go_memstats_alloc_bytes"`) {
			ch <- m
		}
	}
}

// companionCounter counts what the scheduler writes and cancels and what goes to the journal; it makes
// scheduler.Config.Written and Cancelled, and JournalConfig.Kept.
func companionCounter(r prometheus.Registerer) (written func(n int, err error), kept, cancelled func(n int)) {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "overdue_companions_total",
		Help: "Companions by how their write to the monitor queue ended (accepted, failed), or journaled: kept in the journal, and accepted later; " +
			"cancelled: taken back before they were due, because all their messages were settled.",
	}, []string{"result"})
	batch := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "overdue_companion_batch_size", Help: "Companions that were written in one transfer.",
		Buckets: []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000},
	})
	r.MustRegister(c, batch)
	accepted, failed := c.WithLabelValues("accepted"), c.WithLabelValues("failed")
	journaled, early := c.WithLabelValues("journaled"), c.WithLabelValues("cancelled")
	written = func(n int, err error) {
		batch.Observe(float64(n))
		if err != nil {
			failed.Add(float64(n))
			return
		}
		accepted.Add(float64(n))
	}
	return written, func(n int) { journaled.Add(float64(n)) }, func(n int) { early.Add(float64(n)) }
}

// registerState shows where the process stands, as one series for each state.
func registerState(r prometheus.Registerer, l *lifecycle.Lifecycle) {
	for _, s := range []lifecycle.State{lifecycle.StateStarting, lifecycle.StateServing, lifecycle.StateDraining, lifecycle.StateStopped} {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "overdue_state", Help: "1 for the state in which the process is, 0 for the others.",
			ConstLabels: prometheus.Labels{"state": string(s)},
		}, func() float64 { return asNumber(l.State() == s) }))
	}
}

// registerConnections shows who would be waited for after SIGTERM.
func registerConnections(r prometheus.Registerer, a lifecycle.Apps) {
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "overdue_endpoint_connections", Help: "Connections of apps at the endpoints, of all protocols together.",
	}, func() float64 { return float64(a.Connections()) }))
}

// registerClock shows how far the broker's clock is ahead of ours. It is NaN until it has
// been measured.
func registerClock(r prometheus.Registerer, s *scheduler.Scheduler) {
	gauge := func(name, help string, read func(scheduler.Instant) time.Duration) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			now := s.Now()
			if !now.Measured {
				return math.NaN()
			}
			return read(now).Seconds()
		}))
	}
	gauge("overdue_broker_clock_offset_seconds", "The broker's clock minus this machine's; NaN while it is not measured.",
		func(i scheduler.Instant) time.Duration { return time.Until(i.Time) })
	gauge("overdue_broker_clock_uncertainty_seconds", "How wrong the measured clock of the broker can be, either way.",
		func(i scheduler.Instant) time.Duration { return i.Uncertainty })
}
