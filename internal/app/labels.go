// SPDX-License-Identifier: Apache-2.0

package app

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"overdue/alert"
	"overdue/internal/catalog"
)

// A labelReader shows the labels of queues and topics as a metric. A series has the labels of its
// entity, so the description that Describe sends has none of them.
type labelReader struct {
	catalog *catalog.Catalog
	space   prometheus.Labels // the namespace
}

// labelPrefix keeps labels of operators apart from those that Prometheus sets itself, such as service.
const labelPrefix = "label_"

func registerLabels(e *environment, c *catalog.Catalog) {
	e.registry.MustRegister(&labelReader{
		catalog: c,
		space:   prometheus.Labels{namespaceLabel: namespaceOf(e.cfg)},
	})
}

func (r *labelReader) desc(names ...string) *prometheus.Desc {
	return prometheus.NewDesc("overdue_entity_labels",
		"Always 1, for each queue, topic and subscription with labels in monitor.entities. They are the labels of the series, with label_ in front: label_team. Join it with other metrics by entity.",
		append([]string{"entity"}, names...), r.space)
}

// objective describes the one label that is a number.
func (r *labelReader) objective() *prometheus.Desc {
	return prometheus.NewDesc("overdue_entity_objective_ratio",
		"The share of its deadlines that a queue or subscription should meet, from its label objective in monitor.entities. Absent without one.",
		[]string{"entity"}, r.space)
}

// Describe implements prometheus.Collector.
func (r *labelReader) Describe(ch chan<- *prometheus.Desc) {
	ch <- r.desc()
	ch <- r.objective()
}

// Collect implements prometheus.Collector.
func (r *labelReader) Collect(ch chan<- prometheus.Metric) {
	for entity, labels := range r.catalog.AllLabels() {
		values, names := []string{entity}, []string{}
		for _, name := range slices.Sorted(maps.Keys(labels)) {
			names, values = append(names, labelPrefix+name), append(values, labels[name])
		}
		ch <- prometheus.MustNewConstMetric(r.desc(names...), prometheus.GaugeValue, 1, values...)
		if share := alert.Objective(labels); share > 0 {
			ch <- prometheus.MustNewConstMetric(r.objective(), prometheus.GaugeValue, share, entity)
		}
	}
}
