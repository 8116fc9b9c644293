// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"overdue/alert"
	"overdue/internal/adminport"
	"overdue/internal/config"
	"overdue/internal/connect"
)

// embeddedNamespace is what metrics call the namespace of a process that brings its own.
const embeddedNamespace = "embedded"

// namespaceLabel is the label by which alerts distinguish namespaces. Prometheus has a label
// namespace of its own in Kubernetes.
const namespaceLabel = "servicebus_namespace"

// namespaceOf names the namespace of a configuration as events do, so that processes which spell it
// otherwise agree.
func namespaceOf(c *config.Config) string {
	if c.Embedded() {
		return embeddedNamespace
	}
	ns, err := connect.Parse(c.Namespace)
	if err != nil {
		return "" // the start fails with that error
	}
	return alert.NamespaceOf(ns.Host)
}

// A gaugeReader is a gauge whose series are read when somebody asks, from where the state is kept.
type gaugeReader struct {
	desc *prometheus.Desc
	read func(show func(value float64, labels ...string))
}

// Describe implements prometheus.Collector.
func (g *gaugeReader) Describe(ch chan<- *prometheus.Desc) { ch <- g.desc }

// Collect implements prometheus.Collector.
func (g *gaugeReader) Collect(ch chan<- prometheus.Metric) {
	g.read(func(value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, value, labels...)
	})
}

// asNumber is how metrics show whether something holds.
func asNumber(holds bool) float64 {
	if holds {
		return 1
	}
	return 0
}

// registerReady shows why the process is not ready, as /readyz says it.
func registerReady(e *environment) {
	registerReasons(e, "overdue_ready",
		"0 for each reason why /readyz answers 503, 1 for all others; the process is ready where all are 1.",
		adminport.Reasons, func() []error {
			var errs []error
			for _, o := range e.admin.Readiness(context.Background()) {
				errs = append(errs, o.Err)
			}
			return errs
		})
}

// upstreamReasons are those that a namespace cannot be worked with for.
var upstreamReasons = []adminport.Reason{
	adminport.Starting, adminport.NamespaceDown, adminport.KeyRefused, adminport.MonitorQueueMissing, adminport.MonitorQueueFull, adminport.Other,
}

// registerUpstream shows why the monitor queues cannot be written. A process that goes on without
// them is ready all the same.
func registerUpstream(e *environment, u *upstream) {
	registerReasons(e, "overdue_upstream_up",
		"0 for the reason why the monitor queues cannot be written, 1 for all others; all are 1 where they can. "+
			"Unlike overdue_ready, it does not depend on onMonitorDown.",
		upstreamReasons, func() []error { return []error{u.attached(context.Background())} })
}

// registerReasons makes a gauge that is 0 for the reasons of errors, and 1 for all others.
func registerReasons(e *environment, name, help string, all []adminport.Reason, failures func() []error) {
	e.registry.MustRegister(&gaugeReader{
		desc: prometheus.NewDesc(name, help, []string{"reason"}, prometheus.Labels{namespaceLabel: namespaceOf(e.cfg)}),
		read: func(show func(value float64, labels ...string)) {
			holds := map[adminport.Reason]bool{}
			for _, err := range failures() {
				holds[adminport.ReasonOf(err)] = true
			}
			for _, reason := range all {
				show(asNumber(!holds[reason]), string(reason))
			}
		},
	})
}

// registerRestart shows the settings that wait for a restart.
func registerRestart(e *environment) {
	e.registry.MustRegister(&gaugeReader{
		desc: prometheus.NewDesc("overdue_config_restart_pending",
			"1 for each setting whose new value, or the new content of its file, takes effect with the next restart; absent for all others.",
			[]string{"setting"}, nil),
		read: func(show func(value float64, labels ...string)) {
			if keys := e.admin.Restart.Load(); keys != nil {
				for _, key := range *keys {
					show(1, key)
				}
			}
		},
	})
}
