// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"errors"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/prometheus/client_golang/prometheus"

	"overdue/internal/pace"
)

// retryWithin is how long after an attempt that failed the event is sent again, at the latest. If
// none is sent by then, another monitor has it, or it was given up: nothing waits here.
const retryWithin = 7 * time.Minute

const failingHelp = "1 while a sink does not take the events that it is sent, or has asked for pauses and taken none for ten minutes; 0 otherwise."

var failingDesc = prometheus.NewDesc("overdue_sink_failing", failingHelp, []string{"sink"}, nil)

// sinks are the sinks by name, as overdue_sink_failing shows them.
type sinks struct {
	mu  sync.Mutex
	all map[string]refusal
}

// A refusal is that of a sink which takes nothing. The zero value is that of one which does.
type refusal struct {
	err   error     // of the last attempt
	since time.Time // the first attempt that it refused
	until time.Time // the next attempt is made before, if anything waits
}

// note takes the outcome of an attempt; err is nil if the sink took the event.
func (s *sinks) note(sink string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.all[sink] = refusal{}
		return
	}
	now, r := time.Now(), s.all[sink]
	if r.err == nil || now.After(r.until) {
		r.since = now
	}
	r.err, r.until = err, now.Add(retryWithin)
	if stated := (*backoff.RetryAfterError)(nil); errors.As(err, &stated) {
		r.until = r.until.Add(stated.Duration)
	}
	s.all[sink] = r
}

// show makes the series of a sink.
func (s *sinks) show(sink string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.all[sink]; !known {
		s.all[sink] = refusal{}
	}
}

// Describe implements [prometheus.Collector].
func (s *sinks) Describe(ch chan<- *prometheus.Desc) { ch <- failingDesc }

// Collect implements [prometheus.Collector].
func (s *sinks) Collect(ch chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, r := range s.all {
		failing := 0.0
		if pace.HasFailed(r.err, r.since) && time.Now().Before(r.until) {
			failing = 1
		}
		ch <- prometheus.MustNewConstMetric(failingDesc, prometheus.GaugeValue, failing, name)
	}
}
