// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"overdue/internal/config"
	"overdue/internal/escape"
	"overdue/internal/history"
	"overdue/internal/redisstore"
	"overdue/internal/version"
)

// maxNotReady bounds the sentence of a report, in bytes.
const maxNotReady = 300

// A fleet is what this process says to the others that share its Redis, and what it knows of them.
type fleet struct {
	*environment
	view        *redisstore.View        // nil without Redis
	outstanding func() map[string]int64 // nil without a monitor
	metrics     *fleetMetrics           // nil without a monitor or Redis
	reported    history.Verdicts        // as the last report that succeeded has them

	mu     sync.Mutex
	latest redisstore.Fleet
	err    error
	read   time.Time // when latest or err was read
}

// newSelf describes this process, which has its admin port at an address.
func newSelf(r config.Role, admin string) redisstore.Process {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown" // machines without a name look alike
	}
	return redisstore.Process{
		Host:    host,
		Admin:   admin,
		Role:    r.Name,
		Monitor: r.Monitor,
		Version: version.String(),
		Started: time.Now().UTC(),
	}
}

// startFleet has this process report to the others, if there is a Redis. The endpoint of one command
// is none of them.
func (p *Process) startFleet() {
	f := &fleet{environment: p.environment}
	if p.worker != nil {
		f.outstanding = p.worker.OutstandingDeadlines
	}
	p.fleet, p.admin.Fleet = f, f.answer
	if p.shared == nil || p.role.Private {
		return
	}
	f.view = p.shared.View()
	p.self.ID = f.view.ID()
	if p.worker != nil {
		f.metrics = newFleetMetrics(p.registry)
	}
	_, f.reported, _ = p.admin.History.Counts(time.Now())
	p.life.Background("fleet", f.run)
}

// run reports until ctx ends, and then says that this process ends. A monitor also shows what all
// have reported.
func (f *fleet) run(ctx context.Context) error {
	tick := time.NewTicker(redisstore.ReportEvery)
	defer tick.Stop()
	for {
		f.report(ctx)
		if f.metrics != nil {
			f.metrics.show(f.Read(ctx))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			// Without Redis the others find out by themselves, a little later.
			_ = f.view.Leave(context.WithoutCancel(ctx))
			return nil
		}
	}
}

// state is how this process is now.
func (f *fleet) state(ctx context.Context) redisstore.Process {
	p := f.self
	var reasons []string
	for _, o := range f.admin.Readiness(ctx) {
		if o.Err != nil {
			reasons = append(reasons, fmt.Sprintf("%s: %v", o.Name, o.Err))
		}
	}
	p.NotReady = strings.ToValidUTF8(clipTo(strings.Join(reasons, "; "), maxNotReady), "")
	if f.outstanding != nil {
		p.Outstanding = f.outstanding()
	}
	return p
}

func clipTo(text string, length int) string { return text[:min(len(text), length)] }

// report reports once. Verdicts that Redis does not take go with the next report.
func (f *fleet) report(ctx context.Context) {
	_, now, _ := f.admin.History.Counts(time.Now())
	more := history.Verdicts{}
	for entity, byVerdict := range now {
		for verdict, n := range byVerdict {
			if n > f.reported[entity][verdict] {
				if more[entity] == nil {
					more[entity] = map[string]uint64{}
				}
				more[entity][verdict] = n - f.reported[entity][verdict]
			}
		}
	}
	if f.view.Report(ctx, f.state(ctx), more) == nil {
		f.reported = now
	}
}

// Read returns the latest reports of all processes.
func (f *fleet) Read(ctx context.Context) (redisstore.Fleet, error) {
	f.mu.Lock()
	latest, err, age := f.latest, f.err, time.Since(f.read)
	f.mu.Unlock()
	if age < redisstore.ReportEvery/2 {
		return latest, err
	}
	latest, err = f.view.Read(context.WithoutCancel(ctx)) // for others, too
	f.mu.Lock()
	defer f.mu.Unlock()
	f.latest, f.err, f.read = latest, err, time.Now()
	return latest, err
}

// answer answers the admin port: with this process alone where nobody knows of others.
func (f *fleet) answer(w http.ResponseWriter, r *http.Request) {
	a := history.Fleet{Scope: history.ScopeProcess}
	if f.view != nil {
		var err error
		a.Scope = history.ScopeFleet
		if a.Fleet, err = f.Read(r.Context()); err != nil {
			a.Scope, a.Error = history.ScopeAlone, err.Error()
		}
	}
	if a.Scope != history.ScopeFleet {
		p := f.state(r.Context())
		p.Seen = time.Now().UTC()
		a.Processes, a.Outstanding = []redisstore.Process{p}, p.Outstanding
		a.Today, a.Ever, a.Since = f.admin.History.Counts(time.Now())
	}
	w.Header().Set("Content-Type", "application/json")
	_ = escape.WriteJSON(w, a) // only the caller loses something
}

// fleetMetrics are what every monitor of the fleet shows alike.
type fleetMetrics struct {
	outstanding *prometheus.GaugeVec
	missed      *prometheus.GaugeVec
	monitors    prometheus.Gauge
}

func newFleetMetrics(r prometheus.Registerer) *fleetMetrics {
	gauges := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"entity"})
	}
	m := &fleetMetrics{
		outstanding: gauges("overdue_fleet_outstanding_deadlines",
			"Deadlines that have come and that have no verdict of any monitor of the fleet yet; every monitor shows the same. Absent while Redis is."),
		missed: gauges("overdue_fleet_missed_deadlines",
			"Missed deadlines of the fleet, counted since Redis knows it; every monitor shows the same. Absent while Redis is."),
		monitors: prometheus.NewGauge(prometheus.GaugeOpts{Name: "overdue_fleet_monitors", Help: "Monitors that have reported to Redis lately; 0 while Redis is gone."}),
	}
	r.MustRegister(m.outstanding, m.missed, m.monitors)
	return m
}

// show sets the metrics. Values that are not known are not shown.
func (m *fleetMetrics) show(f redisstore.Fleet, err error) {
	m.outstanding.Reset()
	m.missed.Reset()
	m.monitors.Set(0)
	if err != nil {
		return
	}
	m.monitors.Set(float64(f.Monitors()))
	for entity, n := range f.Outstanding {
		m.outstanding.WithLabelValues(entity).Set(float64(n))
	}
	for entity, byVerdict := range f.Ever {
		if n := byVerdict["missed"]; n > 0 {
			m.missed.WithLabelValues(entity).Set(float64(n))
		}
	}
}
