// SPDX-License-Identifier: Apache-2.0

package durations

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"overdue/internal/traceparent"
)

// An exemplar is one of a bucket.
type exemplar struct {
	value  float64
	labels map[string]string
}

// exemplarsOf returns the exemplars of a histogram.
func exemplarsOf(t *testing.T, r *prometheus.Registry, name string) (all []exemplar) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, b := range m.GetHistogram().GetBucket() {
				if e := b.GetExemplar(); e != nil {
					labels := map[string]string{}
					for _, l := range e.GetLabel() {
						labels[l.GetName()] = l.GetValue()
					}
					all = append(all, exemplar{e.GetValue(), labels})
				}
			}
		}
	}
	return all
}

func TestABucketKeepsAnExemplarForASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := prometheus.NewRegistry()
		h, err := New("amqp", "rest", r.Register)
		if err != nil {
			t.Fatal(err)
		}
		trace := func(n byte) traceparent.Context {
			return traceparent.Context{TraceID: [16]byte{15: n}, SpanID: [8]byte{1}, Sampled: true}
		}
		seen := func() (ids string) {
			for _, e := range exemplarsOf(t, r, "overdue_send_duration_seconds") {
				ids += e.labels["trace_id"][30:] + " "
			}
			return ids
		}
		h.Ended("amqp", true, 3*time.Millisecond, trace(1))
		h.Ended("amqp", true, 4*time.Millisecond, trace(2)) // in the same bucket
		h.Ended("amqp", true, time.Minute, trace(3))
		if got := seen(); got != "01 03 " {
			t.Errorf("exemplars of the traces %s, want the first of each bucket", got)
		}
		time.Sleep(exemplarEvery)
		h.Ended("amqp", true, 4*time.Millisecond, trace(4))
		if got := seen(); got != "04 03 " {
			t.Errorf("exemplars of the traces %s, want a new one after a second", got)
		}
	})
}

func TestATracedSendIsAnExemplarAndNoOtherIs(t *testing.T) {
	r := prometheus.NewRegistry()
	h, err := New("amqp", "rest", r.Register)
	if err != nil {
		t.Fatal(err)
	}
	trace, _ := traceparent.Parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	unsampled := trace
	unsampled.Sampled = false
	h.Ended("amqp", true, 3*time.Millisecond, trace)
	h.Ended("rest", false, 3*time.Second, unsampled)
	h.SentUpstream("amqp", true, 2*time.Millisecond, traceparent.Context{})

	got := exemplarsOf(t, r, "overdue_send_duration_seconds")
	if len(got) != 1 || got[0].value != .003 || got[0].labels["trace_id"] != "4bf92f3577b34da6a3ce929d0e0e4736" || got[0].labels["span_id"] != "00f067aa0ba902b7" {
		t.Errorf("exemplars %v, want one of 3 ms with the ids of the trace", got)
	}
	if got := exemplarsOf(t, r, "overdue_send_upstream_seconds"); len(got) != 0 {
		t.Errorf("exemplars %v of a send without a trace", got)
	}
}

// BenchmarkDurations is what the histograms cost a send.
func BenchmarkDurations(b *testing.B) {
	traced, _ := traceparent.Parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	for name, trace := range map[string]traceparent.Context{"untraced": {}, "traced": traced} {
		b.Run(name, func(b *testing.B) {
			h, err := New("amqp", "rest", func(prometheus.Collector) error { return nil })
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				began := time.Now()
				left := time.Now()
				h.SentUpstream("amqp", true, time.Since(left), trace)
				h.Ended("amqp", true, time.Since(began), trace)
			}
		})
	}
}
