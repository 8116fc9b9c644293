// SPDX-License-Identifier: Apache-2.0

// Package metrics has the metrics of a worker.
package metrics

import (
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"overdue/alert"
	"overdue/internal/lag"
	"overdue/internal/operations"
	"overdue/internal/pace"
)

// Verdicts as the metrics name them.
const (
	Met    = operations.Met
	Missed = "missed"
	// Incomplete is about a second deadline, or the only one of a message that may be
	// received at any time.
	Incomplete = "incomplete"
	Unknown    = "unknown"
)

// Judged takes what became of a deadline of an entity, and how late that was noticed. The verdict is
// "" while a message is in flight after its deadline. It must not block.
type Judged func(entity, verdict string, deadline time.Time, lag time.Duration)

// Metrics are the metrics of a worker. All methods are safe for concurrent use.
type Metrics struct {
	Operations *operations.Counter
	deadlines  *operations.Deadlines
	lag        *prometheus.HistogramVec
	waiting    *prometheus.GaugeVec
	alerts     *prometheus.CounterVec
	sinks      sinks
	reminders  *prometheus.CounterVec
	adopted    *prometheus.CounterVec
	muted      *prometheus.CounterVec
	judged     Judged

	mu     sync.Mutex
	inHand map[string]int64 // as waiting has it
}

// New makes the metrics, with series for the entities that are known from the start. judged may be
// nil.
func New(r prometheus.Registerer, o *operations.Counter, d *operations.Deadlines, judged Judged, known ...string) *Metrics {
	if d == nil {
		d = operations.NewDeadlines(r)
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		Operations: o,
		deadlines:  d,
		judged:     judged,
		lag: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "overdue_deadline_lag_seconds",
			Help:    "How long after its deadline a message was dead-lettered, by the broker's clock.",
			Buckets: lag.Buckets(),
		}, []string{"entity"}),
		waiting: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "overdue_outstanding_deadlines",
			Help: "Deadlines that have come and that have no verdict of this process yet.",
		}, []string{"entity"}),
		alerts:    counter("overdue_alerts_total", "Deliveries of events to a sink, by result: ok or error.", "sink", "result"),
		sinks:     sinks{all: map[string]refusal{}},
		reminders: counter("overdue_warnings_total", "Messages that were not settled at warnBefore ahead of their deadline.", "entity"),
		adopted:   counter("overdue_adopted_total", "Messages that were found on their entity and given a companion, since they had none that is due in time.", "entity"),
		muted:     counter("overdue_muted_events_total", "Events of muted queues and topics, which no sink gets. The log and the history have them.", "entity"),
		inHand:    map[string]int64{},
	}
	for _, name := range known {
		m.Show(name)
	}
	if r != nil {
		r.MustRegister(m.lag, m.waiting, m.alerts, &m.sinks, m.reminders, m.adopted, m.muted)
	}
	return m
}

// Show makes the series of an entity, at 0.
func (m *Metrics) Show(entity string) {
	m.deadlines.Show(entity, Met, Missed, Unknown)
	if m.deadlines.IsCanary(entity) {
		return
	}
	label := m.deadlines.Label(entity)
	m.lag.WithLabelValues(label)
	m.waiting.WithLabelValues(label)
	m.reminders.WithLabelValues(label)
	m.adopted.WithLabelValues(label)
	m.muted.WithLabelValues(label)
}

// ShowSink makes the series of a sink, at 0.
func (m *Metrics) ShowSink(sink string) {
	m.alerts.WithLabelValues(sink, "ok")
	m.alerts.WithLabelValues(sink, "error")
	m.sinks.show(sink)
}

// Verdict counts a deadline of an entity.
func (m *Metrics) Verdict(entity, verdict string, deadline time.Time, lag time.Duration) {
	m.deadlines.Add(entity, verdict, 1)
	m.report(entity, verdict, deadline, lag)
}

// InFlight notes that a message is in flight after its deadline.
func (m *Metrics) InFlight(entity string, deadline time.Time) { m.report(entity, "", deadline, 0) }

func (m *Metrics) report(entity, verdict string, deadline time.Time, lag time.Duration) {
	if m.judged != nil && !m.deadlines.IsCanary(entity) {
		m.judged(entity, verdict, deadline, lag)
	}
}

// Notified counts an event on its first notification.
func (m *Metrics) Notified(entity string, e *alert.Event) {
	if e.Data.Muted && !m.deadlines.IsCanary(entity) {
		m.muted.WithLabelValues(m.deadlines.Label(entity)).Inc()
	}
	switch e.Type {
	case alert.TypeMissed:
		m.Verdict(entity, Missed, e.Data.Deadline, e.Data.Lag())
		if m.deadlines.IsCanary(entity) {
			return
		}
		label := m.deadlines.Label(entity)
		m.lag.WithLabelValues(label).Observe(e.Data.Lag().Seconds())
	case alert.TypeIncomplete:
		m.Verdict(entity, Incomplete, e.Data.Deadline, e.Data.Lag())
	case alert.TypeNear:
		m.reminders.WithLabelValues(m.deadlines.Label(entity)).Inc()
	}
}

// Outstanding counts n more messages of an entity that are in hand, or fewer.
func (m *Metrics) Outstanding(entity string, n int) {
	if m.deadlines.IsCanary(entity) {
		return
	}
	label := m.deadlines.Label(entity)
	m.waiting.WithLabelValues(label).Add(float64(n))
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.inHand[label] += int64(n); m.inHand[label] == 0 {
		delete(m.inHand, label)
	}
}

// InHand returns how many messages of each entity are in hand.
func (m *Metrics) InHand() map[string]int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.inHand)
}

// Alert counts the delivery of an event to a sink. One that the sink put off is not counted.
func (m *Metrics) Alert(sink string, err error) {
	m.sinks.note(sink, err)
	switch {
	case err == nil:
		m.alerts.WithLabelValues(sink, "ok").Inc()
	case !pace.IsRetryAfter(err):
		m.alerts.WithLabelValues(sink, "error").Inc()
	}
}

// Adopted counts n messages of an entity that were given a companion.
func (m *Metrics) Adopted(entity string, n int) {
	m.adopted.WithLabelValues(m.deadlines.Label(entity)).Add(float64(n))
}
