// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"overdue/internal/slack"
)

const (
	sampleInterval = 10 * time.Second
	maxSamples     = 90 // a quarter of an hour
)

// A figure is the state of the metrics of one entity.
type figure struct {
	met, missed, incomplete, unknown, outstanding float64

	lags    uint64  // messages whose lag was measured
	lagSum  float64 // of all of them, in seconds
	buckets []bucket
}

type bucket struct {
	upTo float64 // seconds
	n    uint64  // lags of at most upTo
}

// deliveries are the events that a sink took or refused.
type deliveries struct{ ok, failed float64 }

// reading is the state of the metrics.
type reading struct {
	entities map[string]*figure
	sinks    map[string]*deliveries
	fleet    *fleet                       // nil without Redis
	slack    map[string]slack.Settlements // by queue or subscription; none without a proxy
}

// A fleet is what the monitors that share a Redis know together.
type fleet struct {
	monitors float64
	entities map[string]*fleetFigure
}

type fleetFigure struct{ outstanding, missed float64 }

// read reads the metrics. They bound the number of entities themselves.
func read(g prometheus.Gatherer) (*reading, error) {
	families, err := g.Gather()
	if err != nil {
		return nil, fmt.Errorf("read the metrics: %w", err)
	}
	r := &reading{entities: map[string]*figure{}, sinks: map[string]*deliveries{}, slack: slack.Read(families)}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			switch family.GetName() {
			case "overdue_deadlines_total":
				valueOf(r.entities, labels["entity"]).count(labels["verdict"], m.GetCounter().GetValue())
			case "overdue_outstanding_deadlines":
				valueOf(r.entities, labels["entity"]).outstanding += m.GetGauge().GetValue()
			case "overdue_deadline_lag_seconds":
				f, h := valueOf(r.entities, labels["entity"]), m.GetHistogram()
				f.lags, f.lagSum = h.GetSampleCount(), h.GetSampleSum()
				for _, b := range h.GetBucket() {
					f.buckets = append(f.buckets, bucket{b.GetUpperBound(), b.GetCumulativeCount()})
				}
			case "overdue_alerts_total":
				valueOf(r.sinks, labels["sink"]).count(labels["result"], m.GetCounter().GetValue())
			case "overdue_fleet_monitors":
				r.ofFleet().monitors = m.GetGauge().GetValue()
			case "overdue_fleet_outstanding_deadlines":
				valueOf(r.ofFleet().entities, labels["entity"]).outstanding = m.GetGauge().GetValue()
			case "overdue_fleet_missed_deadlines":
				valueOf(r.ofFleet().entities, labels["entity"]).missed = m.GetGauge().GetValue()
			}
		}
	}
	return r, nil
}

// valueOf returns the value of a name, and makes it if there is none.
func valueOf[V any](all map[string]*V, name string) *V {
	if all[name] == nil {
		all[name] = new(V)
	}
	return all[name]
}

func (r *reading) ofFleet() *fleet {
	if r.fleet == nil {
		r.fleet = &fleet{entities: map[string]*fleetFigure{}}
	}
	return r.fleet
}

// fleetRows are the first entities of the fleet, ready to be shown. nil without Redis.
func (r *reading) fleetRows() *fleetRows {
	if r.fleet == nil {
		return nil
	}
	rows := &fleetRows{}
	if r.fleet.monitors > 0 {
		rows.Monitors = number(r.fleet.monitors)
	}
	for _, name := range slices.Sorted(maps.Keys(r.fleet.entities)) {
		if len(rows.Entities) == maxRows {
			break
		}
		f := r.fleet.entities[name]
		rows.Entities = append(rows.Entities, fleetRow{name, number(f.outstanding), number(f.missed)})
	}
	return rows
}

func (f *figure) count(verdict string, n float64) {
	switch verdict {
	case "met":
		f.met += n
	case "missed":
		f.missed += n
	case "incomplete":
		f.incomplete += n
	case "unknown":
		f.unknown += n
	}
}

func (d *deliveries) count(result string, n float64) {
	if result == "ok" {
		d.ok += n
		return
	}
	d.failed += n
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

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
