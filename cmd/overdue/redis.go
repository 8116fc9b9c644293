// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"overdue/alert"
	"overdue/internal/redisstore"
	"overdue/monitor"
	"overdue/scheduler"
)

// readRedis puts what the files of Redis hold in its place, and checks it there. No error shows a value.
func (c *config) readRedis() error {
	key := "redis"
	if c.RedisFile != "" {
		if c.Redis != "" {
			return fmt.Errorf("%s and %s are both given; keep one", c.at("redis"), c.at("redisFile"))
		}
		key = "redisFile"
		text, err := readBounded(c.RedisFile, maxSecretFile)
		if err != nil {
			return fmt.Errorf("%s: %w", c.at(key), err)
		}
		if c.Redis = strings.TrimSpace(string(text)); c.Redis == "" {
			return fmt.Errorf("%s: %s is empty; it has to hold the address of a Redis", c.at(key), c.RedisFile)
		}
	}
	if c.Redis == "" {
		if c.RedisAuthorityFile != "" {
			return fmt.Errorf("%s is given, and no redis; give both or none", c.at("redisAuthorityFile"))
		}
		return nil
	}
	address, err := redisstore.ParseAddress(c.Redis)
	if err != nil {
		return fmt.Errorf("%s: %w", c.at(key), err)
	}
	if c.RedisAuthorityFile == "" {
		c.redisAddress = address
		return nil
	}
	if !address.TLS {
		return fmt.Errorf("%s is given, and the address in %s is not of the form rediss://; write that for TLS", c.at("redisAuthorityFile"), key)
	}
	pem, err := readBounded(c.RedisAuthorityFile, maxCAFile)
	if err != nil {
		return fmt.Errorf("%s: %w", c.at("redisAuthorityFile"), err)
	}
	c.redisRoots = x509.NewCertPool()
	if !c.redisRoots.AppendCertsFromPEM(pem) {
		return fmt.Errorf("%s: %s holds no certificate in PEM", c.at("redisAuthorityFile"), c.RedisAuthorityFile)
	}
	c.redisAddress = address
	return nil
}

// maxCAFile bounds a redisAuthorityFile: a bundle of every public authority has some 250 KiB.
const maxCAFile = 1 << 20

// startRedis opens what the fleet shares, if there is a Redis. Nothing waits for it: it is asked when something is to be
// shared.
func (p *process) startRedis(ns *namespace) (*redisstore.Store, error) {
	if p.cfg.Redis == "" {
		return nil, nil
	}
	up := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "overdue_redis_up", Help: "Whether Redis answered when it was last asked, by what for: 1 or 0.",
	}, []string{"use"})
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "overdue_redis_requests_total", Help: "Requests to Redis, by what for and by result: ok or error. While Redis is left alone there are none.",
	}, []string{"use", "result"})
	p.registry.MustRegister(up, requests)
	s, err := redisstore.Open(redisstore.Config{
		Address: p.cfg.redisAddress, Roots: p.cfg.redisRoots, Fleet: []string{alert.NamespaceOf(ns.host), p.cfg.MonitorQueue},
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
					next = "sends with a deadline are refused or go to the journal, and no companion rings, until it is back"
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
	p.life.started("redis", func(_ context.Context) error {
		_ = s.Close() // nothing that is kept there has to be
		return nil
	})
	p.admin.outbound = append(p.admin.outbound, check{"redis", s.Ping})
	return s, nil
}

// newIndex is the index of companions, shared with other processes if there is a Redis and doors for settlements to come through.
func (p *process) newIndex(shared *redisstore.Store) scheduler.Index {
	own := scheduler.NewMemoryIndex(0)
	if shared == nil || !p.role.proxy {
		return own
	}
	return scheduler.NewSharedIndex(own, shared.Mail(), func(err error) {
		if !errors.Is(err, redisstore.ErrDown) { // which has been told
			p.log.Debug("settlements not shared, companions will ring for nothing", zap.Error(err))
		}
	})
}

// fleetView are the metrics of all monitors together.
type fleetView struct {
	view        *redisstore.View
	outstanding *prometheus.GaugeVec
	missed      *prometheus.GaugeVec
	monitors    prometheus.Gauge
}

// shareTellings has the monitors of the fleet tell of each missed deadline once, send one page for a group, and each of them show what
// all know together.
func (p *process) shareTellings(shared *redisstore.Store, c *monitor.Config) (view func(*monitor.Worker)) {
	if shared == nil {
		return func(*monitor.Worker) {}
	}
	c.Notified, p.pages = shared.Told(), shared.Pages()
	gauges := func(name, help string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"entity"})
		p.registry.MustRegister(g)
		return g
	}
	f := &fleetView{
		view: shared.View(),
		outstanding: gauges("overdue_fleet_outstanding_deadlines",
			"Messages whose deadlines have come and that no monitor of the fleet has settled, expired or told yet; every monitor shows the same. Absent while Redis is."),
		missed: gauges("overdue_fleet_missed_deadlines",
			"Missed deadlines of the fleet, counted since Redis knows it; every monitor shows the same. Absent while Redis is."),
		monitors: prometheus.NewGauge(prometheus.GaugeOpts{Name: "overdue_fleet_monitors", Help: "Monitors that have reported to Redis lately; 0 while Redis is gone."}),
	}
	p.registry.MustRegister(f.monitors)
	return func(w *monitor.Worker) {
		p.life.background("view of the fleet", func(ctx context.Context) error {
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

// show sets the metrics. What is not known is not shown.
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
