// SPDX-License-Identifier: Apache-2.0

// Package slack measures how much time was left before their deadlines when messages were settled,
// and how long after their enqueue that was. The first says how near the deadlines are, the second
// which deadline would have been met. The used share of the time to the deadline is on one scale for
// all queues.
//
// A [Meter] counts in histograms of Prometheus. Their classic buckets are for people who scrape
// them; dashboard and history read the native ones of the first two, which are narrow.
package slack

import (
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	dto "github.com/prometheus/client_model/go"

	"overdue/internal/lag"
)

const (
	leftMetric  = "overdue_deadline_slack_seconds"
	takenMetric = "overdue_settled_after_seconds"
	usedMetric  = "overdue_deadline_used_ratio"
	entityLabel = "entity"

	// maxEntities bounds the entities that are measured apart: their names come from clients.
	maxEntities = 256
	// others is the name of all beyond the bound.
	others = "(other)"

	// SampleEvery is how many deliveries that only the meter needs one stands for, beyond sampleAfter
	// in a second.
	SampleEvery = 16
	sampleAfter = 100
)

// shares are the buckets of the used share. Rules ask for that up to 0.9. More than 1 is late.
var shares = []float64{.1, .2, .3, .4, .5, .6, .7, .8, .9, .95, .99, 1, 2}

// A Meter measures the settlements of a process. nil measures none.
type Meter struct {
	left, taken, used *prometheus.HistogramVec

	mu    sync.Mutex
	names map[string]string // as an entity was spelled first, by its name in lower case
}

// NewMeter makes the metrics and registers them with r, unless that is nil.
func NewMeter(r prometheus.Registerer) *Meter {
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return promauto.With(r).NewHistogramVec(prometheus.HistogramOpts{
			Name:                        name,
			Help:                        help,
			Buckets:                     buckets,
			NativeHistogramBucketFactor: bucketFactor,
		}, []string{entityLabel})
	}
	return &Meter{
		left: histogram(leftMetric,
			"How much time was left before the deadline when a message was settled through the AMQP endpoint. Settlements after the deadline are in the bucket 0.",
			append([]float64{0}, lag.Buckets()...)),
		taken: histogram(takenMetric,
			"How long after its enqueue a message with a deadline was settled through the AMQP endpoint.",
			lag.Buckets()),
		used: histogram(usedMetric,
			"Which share of the time from its enqueue to its deadline had passed when a message was settled through the AMQP endpoint. More than 1 is after the deadline.",
			shares),
		names: map[string]string{},
	}
}

// nameOf returns the label of an entity, which is spelled in any case.
func (m *Meter) nameOf(entity string) string {
	key := strings.ToLower(entity)
	m.mu.Lock()
	defer m.mu.Unlock()
	name, known := m.names[key]
	switch {
	case known:
		return name
	case len(m.names) == maxEntities:
		return others
	}
	m.names[key] = entity
	return entity
}

// A Link measures the settlements of one receiving link. It is not safe for concurrent use. nil
// measures none.
type Link struct {
	meter *Meter
	place string

	left, taken, used prometheus.Observer // from the first settlement on: only then does the place exist for sure

	measured, passed int
	since            time.Time // when measured was last set to 0
}

// Link returns the measurement of a link to a queue or subscription.
func (m *Meter) Link(place string) *Link {
	if m == nil {
		return nil
	}
	return &Link{meter: m, place: place}
}

// Weight is for how many deliveries the next one counts; 0 = it is not to be measured.
func (l *Link) Weight() uint64 {
	if l == nil {
		return 0
	}
	if l.measured++; l.measured <= sampleAfter {
		return 1
	}
	if l.passed++; l.passed%SampleEvery == 0 {
		return SampleEvery
	}
	return 0
}

// Settled counts a settlement with its weight. The instants are those of the broker's clock.
func (l *Link) Settled(enqueued, settled, deadline time.Time, weight uint64) {
	if l == nil {
		return
	}
	if l.left == nil {
		name := l.meter.nameOf(l.place)
		l.left, l.taken, l.used = l.meter.left.WithLabelValues(name), l.meter.taken.WithLabelValues(name), l.meter.used.WithLabelValues(name)
	}
	timeLeft, timeTaken := max(deadline.Sub(settled), 0), max(settled.Sub(enqueued), 0)
	// A deadline that does not lie behind the enqueue gives no time at all.
	share := timeTaken.Seconds() / max(deadline.Sub(enqueued), time.Nanosecond).Seconds()
	for range weight {
		l.left.Observe(timeLeft.Seconds())
		l.taken.Observe(timeTaken.Seconds())
		l.used.Observe(share)
	}
	if settled.Sub(l.since) > time.Second {
		l.measured, l.since = 0, settled
	}
}

// Settlements are those of one entity, by the time that was left and by the time taken.
type Settlements struct{ Left, Taken Buckets }

// Read returns what a [Meter] has counted since the start of the process, by entity.
func Read(metrics []*dto.MetricFamily) map[string]Settlements {
	all := map[string]Settlements{}
	for _, family := range metrics {
		if family.GetName() != leftMetric && family.GetName() != takenMetric {
			continue
		}
		for _, m := range family.GetMetric() {
			entity := m.GetLabel()[0].GetValue()
			s := all[entity]
			if family.GetName() == leftMetric {
				s.Left = bucketsOf(m.GetHistogram())
			} else {
				s.Taken = bucketsOf(m.GetHistogram())
			}
			all[entity] = s
		}
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

// Count is how many settlements there are.
func (s Settlements) Count() uint64 { return s.Left.sum() }

// Summarize sums up the settlements of an entity.
func (s Settlements) Summarize(entity string) Summary {
	return Summary{
		Entity:   entity,
		Count:    s.Count(),
		Late:     s.Left[zeroBucket],
		LeftP1:   s.Left.atLeast(0.01).Milliseconds(),
		LeftP50:  s.Left.atLeast(0.5).Milliseconds(),
		TakenP50: s.Taken.atMost(0.5).Milliseconds(),
		TakenP99: s.Taken.atMost(0.99).Milliseconds(),
	}
}
