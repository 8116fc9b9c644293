// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"overdue/alert"
	"overdue/internal/operations"
)

// maxLabels bounds the entities with series of their own, since every writer to the monitor queue
// can choose names.
const maxLabels = 1000

// otherEntities is the label of all further entities.
const otherEntities = "other"

// Verdicts as the metrics name them.
const (
	verdictMet    = operations.Met
	verdictMissed = "missed"
	// verdictIncomplete is about a second deadline, or the only one of a message that may be
	// received at any time.
	verdictIncomplete = "incomplete"
	verdictUnknown    = "unknown"
)

// metrics are the metrics of a worker. All are safe for concurrent use.
type metrics struct {
	operations *operations.Counter
	deadlines  *operations.Deadlines
	lag        *prometheus.HistogramVec
	waiting    *prometheus.GaugeVec
	alerts     *prometheus.CounterVec
	reminders  *prometheus.CounterVec
	adopted    *prometheus.CounterVec

	mu     sync.Mutex
	labels map[string]struct{}
	inHand map[string]int64 // as waiting has it
	late   map[string]int64 // missed since tally
}

// newMetrics makes the metrics, with series for the entities that are known from the start.
func newMetrics(r prometheus.Registerer, o *operations.Counter, d *operations.Deadlines, known ...string) *metrics {
	if d == nil {
		d = operations.NewDeadlines(r)
	}
	m := &metrics{
		operations: o,
		deadlines:  d,
		lag: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "overdue_deadline_lag_seconds",
			Help:    "How long after its deadline a message was dead-lettered, by the broker's clock.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 3600},
		}, []string{"entity"}),
		waiting: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "overdue_outstanding_deadlines",
			Help: "Messages whose deadlines are due and that this process has not settled, expired or notified yet.",
		}, []string{"entity"}),
		alerts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "overdue_alerts_total",
			Help: "Deliveries of events to a sink, by result: ok or error.",
		}, []string{"sink", "result"}),
		reminders: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "overdue_warnings_total",
			Help: "Messages that were not settled at warnBefore ahead of their deadline.",
		}, []string{"entity"}),
		adopted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "overdue_adopted_total",
			Help: "Messages that bypassed the endpoints of this process and were given a companion.",
		}, []string{"entity"}),
		labels: map[string]struct{}{}, inHand: map[string]int64{}, late: map[string]int64{},
	}
	for _, name := range known {
		m.show(name)
	}
	if r != nil {
		r.MustRegister(m.lag, m.waiting, m.alerts, m.reminders, m.adopted)
	}
	return m
}

// entity returns the label for a name.
func (m *metrics) entity(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.labels[name]; ok {
		return name
	}
	if len(m.labels) == maxLabels {
		return otherEntities
	}
	m.labels[name] = struct{}{}
	return name
}

// show makes the series of an entity, at 0.
func (m *metrics) show(entity string) {
	m.deadlines.Show(entity, verdictMet, verdictMissed, verdictUnknown)
	if m.deadlines.IsCanary(entity) {
		return
	}
	label := m.entity(entity)
	m.lag.WithLabelValues(label)
	m.waiting.WithLabelValues(label)
	m.reminders.WithLabelValues(label)
	m.adopted.WithLabelValues(label)
}

// showSink makes the series of a sink, at 0.
func (m *metrics) showSink(sink string) {
	for _, result := range []string{"ok", "error"} {
		m.alerts.WithLabelValues(sink, result)
	}
}

func (m *metrics) operation(name string, n int) { m.operations.Add(name, n) }

func (m *metrics) verdict(entity, verdict string) {
	m.deadlines.Add(entity, verdict, 1)
}

// notified counts an event on its first notification.
func (m *metrics) notified(entity string, e *alert.Event) {
	switch e.Type {
	case alert.TypeMissed:
		m.verdict(entity, verdictMissed)
		if m.deadlines.IsCanary(entity) {
			return
		}
		label := m.entity(entity)
		m.lag.WithLabelValues(label).Observe(e.Data.Lag().Seconds())
		m.mu.Lock()
		defer m.mu.Unlock()
		m.late[label]++
	case alert.TypeIncomplete:
		m.verdict(entity, verdictIncomplete)
	case alert.TypeNear:
		m.reminders.WithLabelValues(m.entity(entity)).Inc()
	}
}

func (m *metrics) outstanding(entity string, n int) {
	if m.deadlines.IsCanary(entity) {
		return
	}
	label := m.entity(entity)
	m.waiting.WithLabelValues(label).Add(float64(n))
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.inHand[label] += int64(n); m.inHand[label] == 0 {
		delete(m.inHand, label)
	}
}

func (m *metrics) tally() Tally {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := Tally{Outstanding: maps.Clone(m.inHand), Missed: m.late}
	m.late = map[string]int64{}
	return t
}

func (m *metrics) untally(missed map[string]int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, n := range missed {
		m.late[name] += n
	}
}

func (m *metrics) alert(sink string, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	m.alerts.WithLabelValues(sink, result).Inc()
}

// A Tally is the share of one worker in the figures of all processes.
type Tally struct {
	Outstanding map[string]int64 // by entity: deadlines that are due and not handled
	Missed      map[string]int64 // by entity: since the last Tally
}

// Tally returns the figures since the last call.
func (w *Worker) Tally() Tally { return w.metrics.tally() }

// Untally adds missed deadlines back that could not be reported.
func (w *Worker) Untally(missed map[string]int64) { w.metrics.untally(missed) }
