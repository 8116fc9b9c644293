// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"overdue/monitor"
	"overdue/monitor/mute"
)

// dashboardLook is how old the mutes on the dashboard may be.
const dashboardLook = 5 * time.Second

// newMutes makes the record of the mutes, which reads nothing before somebody asks.
func (p *Process) newMutes(c *companions) *mute.Record {
	cfg := mute.Config{
		Links:      p.namespace.links,
		Queue:      p.cfg.AllMonitorQueues().Name(0),
		Scheduler:  c.scheduler,
		Operations: c.operations,
		Log:        p.log.Named("monitor"),
	}
	if c.store != nil {
		cfg.Store = c.store
	}
	return mute.New(cfg)
}

// runMutes keeps the record up to date, and shows it. A topic that is muted is shown with those of
// its subscriptions that the monitor has seen, since they are what other metrics name.
func (p *Process) runMutes(w *monitor.Worker) {
	p.registry.MustRegister(&gaugeReader{
		desc: prometheus.NewDesc("overdue_entity_muted",
			"1 while a queue, topic or subscription is muted, so that no sink gets its events. Absent otherwise.",
			[]string{"entity"}, prometheus.Labels{namespaceLabel: namespaceOf(p.cfg)}),
		read: func(show func(value float64, labels ...string)) {
			shown := map[string]bool{}
			for _, path := range w.Paths() {
				if p.mutes.Has(path) {
					show(1, path)
					shown[strings.ToLower(path)] = true
				}
			}
			for _, m := range p.mutes.InForce() {
				if !shown[strings.ToLower(m.Entity)] {
					show(1, m.Entity)
				}
			}
		},
	})
	p.life.Background("mutes", p.mutes.Run)
}

// shownMutes are those in force, for the dashboard.
func (p *Process) shownMutes(ctx context.Context) ([]mute.Mute, error) {
	err := p.mutes.Look(ctx, dashboardLook)
	return p.mutes.InForce(), err
}
