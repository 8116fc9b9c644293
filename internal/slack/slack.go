// SPDX-License-Identifier: Apache-2.0

// Package slack measures how much time was left before their deadlines when messages were settled,
// and how long after their enqueue that was. The first says how near the deadlines are, the second
// which deadline would have been met.
//
// A [Meter] counts in memory, as metrics and in cells. The history reads the cells and keeps their
// increases by the minute.
package slack

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"overdue/internal/lag"
)

const (
	// maxEntities bounds the entities that are measured apart: their names come from clients.
	maxEntities = 256
	// others is the name of all beyond the bound.
	others = "(other)"
)

// A Meter measures the settlements of a process. nil measures none.
type Meter struct {
	left, taken *prometheus.HistogramVec

	mu       sync.RWMutex
	entities map[string]*Entity // by name in lower case
}

// NewMeter makes the metrics and registers them with r, unless that is nil.
func NewMeter(r prometheus.Registerer) *Meter {
	m := &Meter{
		left: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "overdue_deadline_slack_seconds",
			Help:    "How much time was left before the deadline when a message was settled through the AMQP endpoint. Settlements after the deadline are in the bucket 0.",
			Buckets: append([]float64{0}, lag.Buckets()...),
		}, []string{"entity"}),
		taken: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "overdue_settled_after_seconds",
			Help:    "How long after its enqueue a message with a deadline was settled through the AMQP endpoint.",
			Buckets: lag.Buckets(),
		}, []string{"entity"}),
		entities: map[string]*Entity{},
	}
	if r != nil {
		r.MustRegister(m.left, m.taken)
	}
	return m
}

// An Entity measures the settlements of one queue. nil measures none.
type Entity struct {
	name        string
	left, taken prometheus.Observer
	counts      [numbers]atomic.Uint64
}

// Of returns the entity with a name, which is spelled in any case.
func (m *Meter) Of(name string) *Entity {
	if m == nil {
		return nil
	}
	key := strings.ToLower(name)
	m.mu.RLock()
	e := m.entities[key]
	m.mu.RUnlock()
	if e != nil {
		return e
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.entities) >= maxEntities {
		key, name = others, others
	}
	if e = m.entities[key]; e == nil {
		e = &Entity{name: name, left: m.left.WithLabelValues(name), taken: m.taken.WithLabelValues(name)}
		m.entities[key] = e
	}
	return e
}

// Settled counts n messages, of which one was enqueued, was settled and had its deadline at these
// instants of the broker's clock.
func (e *Entity) Settled(enqueued, settled, deadline time.Time, n uint64) {
	if e == nil {
		return
	}
	timeLeft, timeTaken := max(deadline.Sub(settled), 0), max(settled.Sub(enqueued), 0)
	for range n {
		e.left.Observe(timeLeft.Seconds())
		e.taken.Observe(timeTaken.Seconds())
	}
	if timeLeft == 0 {
		e.counts[lateOffset].Add(n)
	}
	e.counts[leftOffset+cellOf(timeLeft)].Add(n)
	e.counts[takenOffset+cellOf(timeTaken)].Add(n)
}

// Read returns what each entity has counted since the start of the process.
func (m *Meter) Read() map[string]Counts {
	all := map[string]Counts{}
	if m == nil {
		return all
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, e := range m.entities {
		c := Counts{}
		for i := range e.counts {
			if n := e.counts[i].Load(); n > 0 {
				c[uint16(i)] = n
			}
		}
		all[e.name] = c
	}
	return all
}

// A Summary is what people read of the settlements of one entity.
type Summary struct {
	Entity string `json:"entity"`
	Count  uint64 `json:"count"`
	Late   uint64 `json:"late"` // settled after the deadline
	// 99 and 50 of 100 settlements had at least this much time left, in milliseconds.
	LeftP1  int64 `json:"leftP1Ms"`
	LeftP50 int64 `json:"leftP50Ms"`
	// Half of the settlements came within this time after the enqueue, and 99 of 100.
	TakenP50 int64 `json:"takenP50Ms"`
	TakenP99 int64 `json:"takenP99Ms"` // the deadline that 99 of 100 would meet
}

// Summarize sums up the counts of an entity.
func (c Counts) Summarize(entity string) Summary {
	return Summary{
		Entity:   entity,
		Count:    c.Settled(),
		Late:     c.Late(),
		LeftP1:   c.atLeast(leftOffset, 0.01).Milliseconds(),
		LeftP50:  c.atLeast(leftOffset, 0.5).Milliseconds(),
		TakenP50: c.atMost(takenOffset, 0.5).Milliseconds(),
		TakenP99: c.atMost(takenOffset, 0.99).Milliseconds(),
	}
}
