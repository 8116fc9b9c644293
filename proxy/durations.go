// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// durations are the histograms of how long sends take. A send finds its own without a search for
// labels. They leave out what passes the endpoints untouched, and messages that are sent settled,
// which nobody waits for.
type durations struct {
	waited   [2][2]prometheus.Observer // by endpoint, then by whether it is monitored
	upstream [2][2]prometheus.Observer
}

func newDurations(register func(prometheus.Collector) error) (*durations, error) {
	vec := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: name, Help: help, Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"endpoint", "monitored"})
	}
	waited := vec("overdue_send_duration_seconds", "How long the app waited for the outcome of a send to a monitored entity, from when the proxy had all of it. monitored is false where no message of it has a deadline.")
	upstream := vec("overdue_send_upstream_seconds", "The part of overdue_send_duration_seconds from when the messages left for the namespace until its outcome. The companion is written meanwhile.")
	d := &durations{}
	for i, endpoint := range []string{endpointAMQP, endpointREST} {
		for j, monitored := range []string{"false", "true"} {
			d.waited[i][j], d.upstream[i][j] = waited.WithLabelValues(endpoint, monitored), upstream.WithLabelValues(endpoint, monitored)
		}
	}
	if err := register(waited); err != nil {
		return nil, err
	}
	return d, register(upstream)
}

// of returns the place of a send in the histograms.
func (d *durations) of(all *[2][2]prometheus.Observer, endpoint string, monitored bool) prometheus.Observer {
	i, j := 0, 0
	if endpoint == endpointREST {
		i = 1
	}
	if monitored {
		j = 1
	}
	return all[i][j]
}

// sentUpstream records a send whose messages have got their outcome.
func (d *durations) sentUpstream(endpoint string, monitored bool, took time.Duration) {
	d.of(&d.upstream, endpoint, monitored).Observe(took.Seconds())
}

// ended records a send whose outcome the app gets now.
func (d *durations) ended(endpoint string, monitored bool, took time.Duration) {
	d.of(&d.waited, endpoint, monitored).Observe(took.Seconds())
}
