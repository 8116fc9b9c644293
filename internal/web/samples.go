// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"overdue/internal/slack"
)

const (
	sampleInterval = 10 * time.Second
	maxSamples     = 90 // a quarter of an hour
)

// A figure is the state of the metrics of one entity.
type figure struct {
	outstanding float64
	sends       sends
	labels      []string // of the queue, as name=value
	runbook     string   // its label of that name, a link

	lags    uint64  // messages whose lag was measured
	lagSum  float64 // of all of them, in seconds
	buckets []bucket
}

// verdicts are numbers of deadlines. slots are sends to slots, whose deadlines have a verdict only
// when they are missed.
type verdicts struct{ met, missed, incomplete, unknown, slots float64 }

func (v *verdicts) count(verdict string, n float64) {
	switch verdict {
	case "met":
		v.met += n
	case "missed":
		v.missed += n
	case "incomplete":
		v.incomplete += n
	case "unknown":
		v.unknown += n
	case "slot":
		v.slots += n
	}
}

func (v *verdicts) add(more verdicts) {
	v.met += more.met
	v.missed += more.missed
	v.incomplete += more.incomplete
	v.unknown += more.unknown
	v.slots += more.slots
}

// known is how many have a known outcome.
func (v *verdicts) known() float64 { return v.met + v.slots + v.missed + v.incomplete }

// share is the share of them that were met.
func (v *verdicts) share() (share float64, ok bool) {
	known := v.known()
	return 1 - (v.missed+v.incomplete)/known, known > 0
}

// sends are numbers of messages that apps sent.
type sends struct{ sent, refused float64 }

type bucket struct {
	upTo float64 // seconds
	n    uint64  // lags of at most upTo
}

// deliveries are the events that a sink took or refused.
type deliveries struct {
	ok, failed float64
	failing    bool // it has not taken the latest one
}

// reading is the state of the metrics.
type reading struct {
	entities map[string]*figure
	sinks    map[string]*deliveries
	slack    map[string]slack.Settlements // by queue or subscription; none without a proxy

	proxy            bool // the process has one
	inFlight, queued float64
	journal          *float64 // companions there; nil = there is none
	missing, restart []string // entities that do not exist, and settings that wait
	certificates     map[string]time.Time
	historyDropped   float64
}

// read reads the metrics. They bound the number of entities themselves.
func read(g prometheus.Gatherer) (*reading, error) {
	families, err := g.Gather()
	if err != nil {
		return nil, fmt.Errorf("read the metrics: %w", err)
	}
	r := &reading{
		entities:     map[string]*figure{},
		sinks:        map[string]*deliveries{},
		slack:        slack.Read(families),
		certificates: map[string]time.Time{},
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if _, isOfEntity := labels["entity"]; isOfEntity {
				r.addOfEntity(family.GetName(), labels, m)
			} else {
				r.add(family.GetName(), labels, m)
			}
		}
	}
	return r, nil
}

// addOfEntity adds a series about a queue, a topic or a subscription.
func (r *reading) addOfEntity(metric string, labels map[string]string, m *dto.Metric) {
	name, count, gauge := labels["entity"], m.GetCounter().GetValue(), m.GetGauge().GetValue()
	switch metric {
	case "overdue_deadlines_total", "overdue_slot_sends_total":
		valueOf(r.entities, name) // the history counts them
	case "overdue_entity_labels":
		f := valueOf(r.entities, name)
		for _, key := range slices.Sorted(maps.Keys(labels)) {
			if own, ok := strings.CutPrefix(key, "label_"); ok && own == "runbook" {
				f.runbook = labels[key]
			} else if ok {
				f.labels = append(f.labels, own+"="+labels[key])
			}
		}
	case "overdue_outstanding_deadlines":
		valueOf(r.entities, name).outstanding += gauge
	case "overdue_deadline_lag_seconds":
		f, h := valueOf(r.entities, name), m.GetHistogram()
		f.lags, f.lagSum = h.GetSampleCount(), h.GetSampleSum()
		for _, b := range h.GetBucket() {
			f.buckets = append(f.buckets, bucket{b.GetUpperBound(), b.GetCumulativeCount()})
		}
	case "overdue_sends_total":
		s := &valueOf(r.entities, name).sends
		if result := labels["result"]; result == "refused" || result == "failed" {
			s.refused += count
		} else {
			s.sent += count
		}
	case "overdue_entity_missing":
		if gauge > 0 {
			r.missing = append(r.missing, name)
		}
	}
}

// add adds any other series.
func (r *reading) add(metric string, labels map[string]string, m *dto.Metric) {
	count, gauge := m.GetCounter().GetValue(), m.GetGauge().GetValue()
	switch metric {
	case "overdue_sends_in_flight":
		r.proxy, r.inFlight = true, gauge
	case "overdue_sends_queued":
		r.queued = gauge
	case "overdue_journal_companions":
		r.journal = &gauge
	case "overdue_alerts_total":
		s := valueOf(r.sinks, labels["sink"])
		if labels["result"] == "ok" {
			s.ok += count
		} else {
			s.failed += count
		}
	case "overdue_sink_failing":
		valueOf(r.sinks, labels["sink"]).failing = gauge > 0
	case "overdue_config_restart_pending":
		r.restart = append(r.restart, labels["setting"])
	case "overdue_certificate_expiry_timestamp_seconds":
		if gauge > 0 {
			r.certificates[labels["use"]] = time.Unix(int64(gauge), 0)
		}
	case "overdue_history_dropped_total":
		r.historyDropped = count
	}
}

// valueOf returns the value of a name, and makes it if there is none.
func valueOf[V any](all map[string]*V, name string) *V {
	if all[name] == nil {
		all[name] = new(V)
	}
	return all[name]
}

// within returns the smallest bound of a bucket that has 99 of 100 lags. ok is false without lags,
// and for lags beyond the last bucket.
func (f *figure) within() (bound time.Duration, ok bool) {
	for _, b := range f.buckets {
		if f.lags > 0 && float64(b.n) >= 0.99*float64(f.lags) {
			return seconds(b.upTo), true
		}
	}
	return 0, false
}

// samples are the lags of the last quarter of an hour, by entity. A sample only has the entities
// where a lag was measured.
type samples struct {
	before map[string]lagTotal   // as of the last sample
	latest []map[string]lagTotal // the oldest first; what came on top since the sample before
}

type lagTotal struct {
	n   uint64
	sum float64
}

// take adds a sample, and drops the oldest one beyond maxSamples.
func (s *samples) take(r *reading) {
	totals, added := map[string]lagTotal{}, map[string]lagTotal{}
	for name, f := range r.entities {
		totals[name] = lagTotal{f.lags, f.lagSum}
		if was := s.before[name]; s.before != nil && f.lags > was.n {
			added[name] = lagTotal{f.lags - was.n, f.lagSum - was.sum}
		}
	}
	s.before = totals
	if s.latest = append(s.latest, added); len(s.latest) > maxSamples {
		s.latest = append([]map[string]lagTotal(nil), s.latest[1:]...)
	}
}

// means returns the mean lag of each sample of an entity, in seconds. The latest comes last, and
// -1 stands for none.
func (s *samples) means(entity string) []float64 {
	means := make([]float64, 0, len(s.latest))
	for _, sample := range s.latest {
		mean := -1.0
		if t := sample[entity]; t.n > 0 {
			mean = max(0, t.sum/float64(t.n))
		}
		means = append(means, mean)
	}
	return means
}

// lastQuarter is how many lags were measured in the last quarter of an hour.
func (s *samples) lastQuarter(entity string) (n uint64) {
	for _, sample := range s.latest {
		n += sample[entity].n
	}
	return n
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
