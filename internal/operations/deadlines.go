// SPDX-License-Identifier: Apache-2.0

package operations

import (
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Met is the verdict about a message that was settled in time.
const Met = "met"

// Canary is the verdict about every message of the queue of canaries, which miss their deadlines on
// purpose.
const Canary = "canary"

const (
	// maxEntities bounds the entities that have series of their own: names come from companions, and
	// those from anybody who may write to the monitor queue.
	maxEntities = 1000
	// otherEntities is the label of those beyond the bound.
	otherEntities = "other"
)

const help = "Deadlines by outcome: met, missed, unknown where nobody can tell, canary on the queue of canaries, where they are missed on purpose, or incomplete, of a second deadline: the message was not completed when it had to be. " +
	"They are counted when they have passed, or when the companion is cancelled because they are met."

// Deadlines counts what became of deadlines: overdue_deadlines_total. nil counts nothing.
type Deadlines struct {
	vec    *prometheus.CounterVec
	canary string // the queue of canaries; "": none

	mu     sync.Mutex
	labels map[string]struct{}
}

// NewDeadlines makes the metric and registers it with r, unless that is nil.
func NewDeadlines(r prometheus.Registerer) *Deadlines {
	d := &Deadlines{
		vec: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "overdue_deadlines_total",
			Help: help,
		}, []string{"entity", "verdict"}),
		labels: map[string]struct{}{},
	}
	if r != nil {
		r.MustRegister(d.vec)
	}
	return d
}

// SetCanary names the queue of canaries, "" if there is none. Call it before all else. Whether a
// message is a canary depends on the queue alone: anybody can choose a message-id, and must not
// hide a missed deadline with it.
func (d *Deadlines) SetCanary(queue string) {
	if queue != "" {
		d.canary = queue
		d.Show(queue, Canary)
	}
}

// IsCanary reports whether an entity is the queue of canaries.
func (d *Deadlines) IsCanary(entity string) bool {
	return d != nil && d.canary != "" && strings.EqualFold(entity, d.canary)
}

// Add counts n more deadlines of an entity.
func (d *Deadlines) Add(entity, verdict string, n int) {
	if d.IsCanary(entity) {
		entity, verdict = d.canary, Canary
	}
	if d != nil && n > 0 {
		d.vec.WithLabelValues(d.Label(entity), verdict).Add(float64(n))
	}
}

// Show makes the series of an entity with these verdicts, at 0: only then the first one that is
// counted is an increase.
func (d *Deadlines) Show(entity string, verdicts ...string) {
	if d == nil {
		return
	}
	if d.IsCanary(entity) {
		entity, verdicts = d.canary, []string{Canary}
	}
	label := d.Label(entity)
	for _, v := range verdicts {
		d.vec.WithLabelValues(label, v)
	}
}

// Label returns the label for an entity, in all metrics that have one.
func (d *Deadlines) Label(entity string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.labels[entity]; ok {
		return entity
	}
	if len(d.labels) == maxEntities {
		return otherEntities
	}
	d.labels[entity] = struct{}{}
	return entity
}
