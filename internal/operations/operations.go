// SPDX-License-Identifier: Apache-2.0

// Package operations has the metrics that several components count into: what Overdue asks of the
// broker on its own account, overdue_broker_operations_total, and the outcomes of deadlines,
// overdue_deadlines_total.
//
// Operations of apps through the AMQP endpoint are theirs and are not counted here. A message that
// is sent, received or settled is one operation each, whether or not it shares a transfer with
// others. A request to a management node is one, however many messages it is about.
package operations

import "github.com/prometheus/client_golang/prometheus"

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
