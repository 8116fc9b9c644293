// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"overdue/alert"
	"overdue/internal/adminport"
	"overdue/internal/connect"
	"overdue/internal/redisstore"
	"overdue/monitor"
)

// startRedis opens what the fleet shares, if there is a Redis. Nothing waits for it: it is asked when something is to be
// shared.
func (p *Process) startRedis(ns *connect.Namespace) (*redisstore.Store, error) {
	if p.cfg.Redis == "" {
		return nil, nil
	}
	up := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "overdue_redis_up", Help: "Whether Redis answered when it was last asked, by what for: 1 or 0.",
	}, []string{"use"})
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "overdue_redis_requests_total", Help: "Requests to Redis, by what for and by result: ok or error. While Redis does not answer, Overdue asks it every two seconds.",
	}, []string{"use", "result"})
	p.registry.MustRegister(up, requests)
	s, err := redisstore.Open(redisstore.Config{
		Address: p.cfg.RedisAddress, Roots: p.cfg.RedisRoots, Fleet: []string{alert.NamespaceOf(ns.Host), p.cfg.MonitorQueue},
		Asked: func(use string, err error, news bool) {
			if err == nil {
				requests.WithLabelValues(use, "ok").Inc()
				up.WithLabelValues(use).Set(1)
			} else {
				requests.WithLabelValues(use, "error").Inc()
				up.WithLabelValues(use).Set(0)
			}
			switch {
			case !news:
			case err != nil:
				next := "going on without it"
				if use == "companions" {
					next = "sends with a deadline are refused or go to the journal, and no companion becomes due, until it is back"
				}
				p.log.Warn("redis unavailable", zap.String("use", use), zap.Error(err), zap.String("next", next))
			default:
				p.log.Info("redis available again", zap.String("use", use))
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("make the client of Redis: %w", err)
	}
	p.life.Started("redis", func(_ context.Context) error {
		_ = s.Close() // nothing that is kept there has to be
		return nil
	})
	p.admin.Outbound = append(p.admin.Outbound, adminport.Check{Name: "redis", OK: s.Ping})
	return s, nil
}

// fleetView are the metrics of all monitors together.
type fleetView struct {
	view        *redisstore.View
	outstanding *prometheus.GaugeVec
	missed      *prometheus.GaugeVec
	monitors    prometheus.Gauge
}

// shareNotifications has the monitors of the fleet notify of each missed deadline once, send one page for a group, and each of them show what
// all know together.
func (p *Process) shareNotifications(shared *redisstore.Store, c *monitor.Config) (view func(*monitor.Worker)) {
	if shared == nil {
		return func(*monitor.Worker) {}
	}
	c.Notified, p.pages = shared.Notified(), shared.Groups()
	gauges := func(name, help string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"entity"})
		p.registry.MustRegister(g)
		return g
	}
	f := &fleetView{
		view: shared.View(),
		outstanding: gauges("overdue_fleet_outstanding_deadlines",
			"Messages whose deadlines have come and that no monitor of the fleet has settled, expired or notified of yet; every monitor shows the same. Absent while Redis is."),
		missed: gauges("overdue_fleet_missed_deadlines",
			"Missed deadlines of the fleet, counted since Redis knows it; every monitor shows the same. Absent while Redis is."),
		monitors: prometheus.NewGauge(prometheus.GaugeOpts{Name: "overdue_fleet_monitors", Help: "Monitors that have reported to Redis lately; 0 while Redis is gone."}),
	}
	p.registry.MustRegister(f.monitors)
	return func(w *monitor.Worker) {
		p.life.Background("view of the fleet", func(ctx context.Context) error {
			f.run(ctx, w)
			return nil
		})
	}
}

// run reports and shows until ctx ends.
func (f *fleetView) run(ctx context.Context, w *monitor.Worker) {
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
			return
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
