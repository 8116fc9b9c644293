// SPDX-License-Identifier: Apache-2.0

// Package durations measures how long sends take, as histograms with exemplars.
package durations

import (
	"encoding/hex"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"overdue/internal/traceparent"
)

// Histograms are those of how long sends take. A send finds its own without a search for labels.
// They leave out what passes the endpoints untouched, and messages that are sent settled, which
// nobody waits for, and canaries.
type Histograms struct {
	endpoints        [2]string
	waited, upstream [2][2]series // by endpoint, then by whether it is monitored
}

var buckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

// exemplarEvery is how often a bucket gets an exemplar. Each costs as much as twenty observations,
// and a scrape sees the last one.
const exemplarEvery = time.Second

// A series is one histogram.
type series struct {
	prometheus.ExemplarObserver
	latest [16]atomic.Int64 // of each bucket: when it got an exemplar, in nanoseconds since 1970
}

// lacksExemplar reports whether the bucket of v is to get an exemplar now.
func (s *series) lacksExemplar(v float64) bool {
	i := 0
	for i < len(buckets) && v > buckets[i] {
		i++
	}
	now, before := time.Now().UnixNano(), s.latest[i].Load()
	return now-before >= int64(exemplarEvery) && s.latest[i].CompareAndSwap(before, now)
}

// New makes the histograms of two endpoints.
func New(amqp, rest string, register func(prometheus.Collector) error) (*Histograms, error) {
	vec := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: name, Help: help, Buckets: buckets,
		}, []string{"endpoint", "monitored"})
	}
	waited := vec("overdue_send_duration_seconds", "How long the app waited for the outcome of a send to a monitored entity, from when the proxy had all of it. monitored is false where no message of it has a deadline.")
	upstream := vec("overdue_send_upstream_seconds", "The part of overdue_send_duration_seconds from when the messages left for the namespace until its outcome. The companion is written meanwhile.")
	h := &Histograms{endpoints: [2]string{amqp, rest}}
	for i, endpoint := range h.endpoints {
		for j, monitored := range []string{"false", "true"} {
			h.waited[i][j].ExemplarObserver = waited.WithLabelValues(endpoint, monitored).(prometheus.ExemplarObserver)
			h.upstream[i][j].ExemplarObserver = upstream.WithLabelValues(endpoint, monitored).(prometheus.ExemplarObserver)
		}
	}
	return h, errors.Join(register(waited), register(upstream))
}

// observe records a duration, with the trace of the send if it has one. Canaries come to neither
// endpoint.
func (h *Histograms) observe(all *[2][2]series, endpoint string, monitored bool, took time.Duration, trace traceparent.Context) {
	i, j := slices.Index(h.endpoints[:], endpoint), 0
	if i < 0 {
		return
	}
	if monitored {
		j = 1
	}
	var exemplar prometheus.Labels // nil: none
	if trace.Sampled && all[i][j].lacksExemplar(took.Seconds()) {
		exemplar = prometheus.Labels{"trace_id": hex.EncodeToString(trace.TraceID[:]), "span_id": hex.EncodeToString(trace.SpanID[:])}
	}
	all[i][j].ObserveWithExemplar(took.Seconds(), exemplar)
}

// SentUpstream records a send whose messages have got their outcome.
func (h *Histograms) SentUpstream(endpoint string, monitored bool, took time.Duration, trace traceparent.Context) {
	h.observe(&h.upstream, endpoint, monitored, took, trace)
}

// Ended records a send whose outcome the app gets now.
func (h *Histograms) Ended(endpoint string, monitored bool, took time.Duration, trace traceparent.Context) {
	h.observe(&h.waited, endpoint, monitored, took, trace)
}
