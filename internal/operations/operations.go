// SPDX-License-Identifier: Apache-2.0

// Package operations has the metrics that several components count into: what Overdue asks of the
// broker on its own account, overdue_broker_operations_total, and the outcomes of deadlines,
// overdue_deadlines_total.
//
// Operations of apps through the AMQP endpoint are theirs and are not counted here. A message that
// is sent, received or settled is one operation each, whether or not it shares a transfer with
// others. A request to a management node is one, however many messages it is about.
package operations

import (
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Values of the label operation.
const (
	Send       = "send"        // a work message, by the REST endpoint
	Schedule   = "schedule"    // a companion is written
	Cancel     = "cancel"      // a request that cancels companions
	Probe      = "probe"       // a request for the broker's clock: schedule, peek, cancel
	Peek       = "peek"        // a page
	Receive    = "receive"     // a companion
	Nudge      = "nudge"       // a receive that wakes the broker's own expiry
	Scan       = "scan"        // a work message, received to expire it by hand or to get past it
	Deferred   = "deferred"    // a request for deferred messages
	Renew      = "renew"       // a request that renews locks of companions
	Complete   = "complete"    // a companion
	Release    = "release"     // a message that was received is given back
	DeadLetter = "dead-letter" // of a work message by hand, or of a companion
)

// A Counter is the metric. nil counts nothing.
type Counter struct{ vec *prometheus.CounterVec }

// New makes the metric and registers it with r, unless that is nil.
func New(r prometheus.Registerer) *Counter {
	c := &Counter{vec: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "overdue_broker_operations_total",
		Help: "Operations on the broker beyond those of the apps themselves, about as a namespace would bill them.",
	}, []string{"operation"})}
	if r != nil {
		r.MustRegister(c.vec)
	}
	return c
}

// Add counts n more of an operation.
func (c *Counter) Add(operation string, n int) {
	if c != nil && n > 0 {
		c.vec.WithLabelValues(operation).Add(float64(n))
	}
}

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
