// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"overdue/proxy/durations"
)

// Values of the label result.
const (
	resultMonitored   = "monitored"   // accepted, and so is its companion
	resultUnmonitored = "unmonitored" // accepted; it has no deadline
	resultRefused     = "refused"     // a retry does not help
	resultFailed      = "failed"      // a retry may help
)

// Entity names come from clients. A name becomes a label only after the broker has accepted a
// message for it, and the number of labels is bounded.
const (
	maxEntityLabels = 256
	otherEntities   = "(other)"
)

// metrics are the metrics of the proxy.
type metrics struct {
	sends  *prometheus.CounterVec
	slots  *prometheus.CounterVec // the monitor never learns how many of them are met
	canary string                 // the queue of canaries, whose sends are no app's and are not counted
	*durations.Histograms

	mu       sync.RWMutex
	entities map[string]string // name in lower case → label
}

func newMetrics(r prometheus.Registerer, canary string, inFlight func() int, queued func() int64) (*metrics, error) {
	m := &metrics{
		canary: canary, entities: map[string]string{},
		sends: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "overdue_sends_total",
			Help: "Messages sent through the proxy, by entity, endpoint (amqp or rest) and result (monitored, unmonitored, refused, failed).",
		}, []string{"entity", "endpoint", "result"}),
		slots: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "overdue_slot_sends_total",
			Help: "Monitored messages whose companion is a slot, so that overdue_deadlines_total counts those of them that are missed, and not those that are met.",
		}, []string{"entity"}),
	}
	register := func(c prometheus.Collector) error {
		if r == nil {
			return nil
		}
		return r.Register(c)
	}
	var err error
	if m.Histograms, err = durations.New(endpointAMQP, endpointREST, register); err != nil {
		return nil, err
	}
	return m, errors.Join(register(m.sends), register(m.slots),
		register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "overdue_sends_in_flight", Help: "Sends to monitored entities that have no outcome yet."}, func() float64 { return float64(inFlight()) })),
		register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "overdue_sends_queued", Help: "Sends that wait for a place among those in flight (proxy.maxInFlight)."}, func() float64 { return float64(queued()) })))
}

// sent counts one send of n messages, of which promised have a deadline.
func (m *metrics) sent(endpoint, entity string, n, promised int, err error) {
	if m.isCanary(entity) {
		return
	}
	label := m.label(entity, err == nil)
	if err == nil {
		m.add(label, endpoint, resultMonitored, promised)
		m.add(label, endpoint, resultUnmonitored, n-promised)
		return
	}
	result := resultRefused
	if _, retryAfter, _ := answer(err, entity); retryAfter > 0 {
		result = resultFailed
	}
	if errors.Is(err, errBadRequest) {
		n = max(n, 1) // an unreadable request counts as one message
	}
	m.add(label, endpoint, result, n)
}

// count counts a send that has ended.
func (s *send) count(err error) {
	promised := 0
	if err == nil {
		promised = len(s.promises)
		s.p.logAccepted(s.via, s.entity, s.n, s.companionKind(), s.refs)
	}
	s.p.metrics.sent(s.via, s.entity, s.n, promised, err)
	if s.slotted && promised > 0 && !s.p.metrics.isCanary(s.entity) {
		s.p.metrics.slots.WithLabelValues(s.p.metrics.label(s.entity, true)).Add(float64(promised))
	}
}

func (m *metrics) add(entity, endpoint, result string, n int) {
	if n > 0 {
		m.sends.WithLabelValues(entity, endpoint, result).Add(float64(n))
	}
}

func (m *metrics) isCanary(entity string) bool {
	return m.canary != "" && strings.EqualFold(entity, m.canary)
}

// show makes the series of an entity at one endpoint, at 0.
func (m *metrics) show(entity, endpoint string) {
	if m.isCanary(entity) {
		return
	}
	label := m.label(entity, true)
	for _, result := range []string{resultMonitored, resultUnmonitored, resultRefused, resultFailed} {
		m.sends.WithLabelValues(label, endpoint, result)
	}
	m.slots.WithLabelValues(label)
}

// label returns the entity's name in the spelling that came first, or otherEntities.
func (m *metrics) label(entity string, exists bool) string {
	key := strings.ToLower(entity)
	m.mu.RLock()
	label, ok := m.entities[key]
	m.mu.RUnlock()
	if ok {
		return label
	}
	if !exists {
		return otherEntities
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if label, ok := m.entities[key]; ok {
		return label
	}
	if len(m.entities) == maxEntityLabels {
		return otherEntities
	}
	m.entities[key] = entity
	return entity
}
