// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"overdue/alert"
	"overdue/internal/redisstore"
	"overdue/monitor"
)

// startRedis opens what the fleet shares, if there is a Redis. Nothing waits for it: it is asked when something is to be
// shared.
func startRedis(e *environment, host string) (*redisstore.Store, error) {
	if e.cfg.Redis == "" {
		return nil, nil
	}
	up := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "overdue_redis_up", Help: "Whether Redis answered when it was last asked, by what for: 1 or 0.",
	}, []string{"use"})
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "overdue_redis_requests_total", Help: "Requests to Redis, by what for and by result: ok or error. While Redis does not answer, Overdue asks it every two seconds.",
	}, []string{"use", "result"})
	e.registry.MustRegister(up, requests)
	s, err := redisstore.Open(redisstore.Config{
		Address: e.cfg.RedisAddress, Roots: e.cfg.RedisRoots, Fleet: []string{alert.NamespaceOf(host), e.cfg.MonitorQueue},
		Asked: func(use string, err error, news bool) {
			result, answers := "ok", 1.0
			if err != nil {
				result, answers = "error", 0
			}
			requests.WithLabelValues(use, result).Inc()
			up.WithLabelValues(use).Set(answers)
			switch {
			case !news:
			case err != nil:
				next := "going on without it"
				if use == "companions" {
					next = "sends with a deadline are refused or go to the journal, and no companion becomes due, until it is back"
				}
				e.log.Warn("redis unavailable", zap.String("use", use), zap.Error(err), zap.String("next", next))
			default:
				e.log.Info("redis available again", zap.String("use", use))
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("make the client of Redis: %w", err)
	}
	e.life.Started("redis", func(_ context.Context) error {
		_ = s.Close() // nothing that is kept there has to be
		return nil
	})
	e.addOutbound("redis", s.Ping)
	return s, nil
}

// fleetView are the metrics of all monitors together.
type fleetView struct {
	view        *redisstore.View
	outstanding *prometheus.GaugeVec
	missed      *prometheus.GaugeVec
	monitors    prometheus.Gauge
}

// newFleetView makes the metrics, which every monitor of the fleet shows alike.
func newFleetView(r prometheus.Registerer, view *redisstore.View) *fleetView {
	gauges := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"entity"})
	}
	f := &fleetView{
		view: view,
		outstanding: gauges("overdue_fleet_outstanding_deadlines",
			"Messages whose deadlines have come and that no monitor of the fleet has settled, expired or notified of yet; every monitor shows the same. Absent while Redis is."),
		missed: gauges("overdue_fleet_missed_deadlines",
			"Missed deadlines of the fleet, counted since Redis knows it; every monitor shows the same. Absent while Redis is."),
		monitors: prometheus.NewGauge(prometheus.GaugeOpts{Name: "overdue_fleet_monitors", Help: "Monitors that have reported to Redis lately; 0 while Redis is gone."}),
	}
	r.MustRegister(f.outstanding, f.missed, f.monitors)
	return f
}

// run reports and shows until ctx ends.
func (f *fleetView) run(ctx context.Context, w *monitor.Worker) error {
	tick := time.NewTicker(redisstore.ReportEvery)
	defer tick.Stop()
	for {
		tally := w.Tally()
		if err := f.view.Report(ctx, tally.Outstanding, tally.Missed); err != nil {
			w.Untally(tally.Missed)
		}
		f.show(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// show sets the metrics. Values that are not known are not shown.
func (f *fleetView) show(ctx context.Context) {
	totals, err := f.view.Read(ctx)
	f.outstanding.Reset()
	f.missed.Reset()
	f.monitors.Set(0)
	if err != nil {
		return
	}
	f.monitors.Set(float64(totals.Monitors))
	for entity, n := range totals.Outstanding {
		f.outstanding.WithLabelValues(entity).Set(float64(n))
	}
	for entity, n := range totals.Missed {
		f.missed.WithLabelValues(entity).Set(float64(n))
	}
}
