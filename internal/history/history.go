// SPDX-License-Identifier: Apache-2.0

// Package history keeps what happened for some days: missed deadlines in full, and how many sends,
// outcomes and deliveries of alerts there were in each minute. It is one bounded file. No guarantee
// depends on it, so a file that cannot be written costs history and nothing else.
//
// Counts are the increases of the metrics, read every few seconds. Nothing is added to the path of
// a send or of a verdict; a missed deadline is one append to a list in memory.
//
// The process that runs has the file for itself. Others read it over the admin port ([Fetch]);
// code of the same process calls [History.Missed] and [History.Minutes].
package history

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"overdue/alert"
)

const (
	// interval is how long what happened may wait in memory. A crash loses that much.
	interval = 5 * time.Second
	// maxPending bounds the missed deadlines that wait for a file that cannot be written.
	maxPending = 10_000
	// maxCounts bounds the counts that wait for it.
	maxCounts = 100_000
)

// Config says what is kept and where.
type Config struct {
	Directory string
	Keep      time.Duration // what is older is removed
	MaxSize   int64         // of the records; the file takes about twice as much
	Metrics   prometheus.Gatherer
	// Changed is called when writes begin to fail, and with nil when they succeed again.
	Changed func(error)
}

// A History is open. A nil History keeps nothing.
type History struct {
	cfg  Config
	file *file

	mu      sync.Mutex
	pending []alert.Event
	dropped uint64 // missed deadlines that there was no room for

	last   map[series]uint64 // of Run alone: the metrics as they were last read
	counts map[point]uint64  // of Run alone: increases that are not on disk yet
	failed bool              // of Run alone
}

// Open opens the history in a directory, which it makes if need be. A damaged file is moved aside;
// then aside is its new name.
func Open(c Config) (h *History, aside string, err error) {
	f, aside, err := openFile(c.Directory)
	if err != nil {
		return nil, aside, err
	}
	return &History{cfg: c, file: f, last: map[series]uint64{}, counts: map[point]uint64{}}, aside, nil
}

// Record returns a sink that keeps missed deadlines and passes every event on to a.
func (h *History) Record(a alert.Alerter) alert.Alerter {
	if h == nil {
		return a
	}
	return recorder{a, h}
}

type recorder struct {
	alert.Alerter
	history *History
}

// Unwrap returns the sink behind the recorder.
func (r recorder) Unwrap() alert.Alerter { return r.Alerter }

// Alert keeps the event if a deadline was missed. It never waits for the disk.
func (r recorder) Alert(ctx context.Context, e alert.Event) error {
	if e.Type == alert.TypeMissed || e.Type == alert.TypeIncomplete {
		r.history.add(&e)
	}
	return r.Alerter.Alert(ctx, e)
}

func (h *History) add(e *alert.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.pending) == maxPending {
		h.dropped++
		return
	}
	h.pending = append(h.pending, *e)
}

// Dropped says how many missed deadlines were not kept, because the file could not be written.
func (h *History) Dropped() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.dropped
}

// Run writes what happened until ctx ends, then once more, and closes the file.
func (h *History) Run(ctx context.Context) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
		h.flush(time.Now())
	}
	return h.file.close()
}

// flush writes everything that waits in one transaction. What cannot be written waits on.
func (h *History) flush(now time.Time) {
	sampleErr := h.sample(now)
	h.mu.Lock()
	events := h.pending
	h.pending = nil
	h.mu.Unlock()
	err := h.file.write(events, h.counts, now.Add(-h.cfg.Keep), h.cfg.MaxSize)
	if err == nil {
		clear(h.counts)
	} else {
		h.putBack(events)
	}
	if err = errors.Join(sampleErr, err); (err != nil) != h.failed {
		h.failed = err != nil
		h.cfg.Changed(err)
	}
}

func (h *History) putBack(events []alert.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pending = append(events, h.pending...)
	if over := len(h.pending) - maxPending; over > 0 {
		h.pending = h.pending[:maxPending]
		h.dropped += uint64(over)
	}
}

// counted are the metrics whose increases are kept, with the labels that name what was counted and
// how it ended.
var counted = map[string]struct{ kind, name, result string }{
	"overdue_sends_total":     {"sends", "entity", "result"},
	"overdue_deadlines_total": {"deadlines", "entity", "verdict"},
	"overdue_alerts_total":    {"alerts", "sink", "result"},
}

// A series is what is counted: sends and deadlines by entity, alerts by sink.
type series struct{ kind, name, result string }

// A point is a series in one minute, as seconds since 1970.
type point struct {
	minute int64
	series
}

// sample reads the metrics and adds their increases to the present minute.
func (h *History) sample(now time.Time) error {
	families, err := h.cfg.Metrics.Gather()
	if err != nil && len(families) == 0 {
		return fmt.Errorf("history: read the metrics: %w", err)
	}
	minute := now.Truncate(time.Minute).Unix()
	totals := map[series]uint64{}
	for _, f := range families {
		c, ok := counted[f.GetName()]
		if !ok {
			continue
		}
		for _, m := range f.GetMetric() {
			s := series{kind: c.kind}
			for _, l := range m.GetLabel() {
				switch l.GetName() {
				case c.name:
					s.name = l.GetValue()
				case c.result:
					s.result = l.GetValue()
				}
			}
			totals[s] += uint64(m.GetCounter().GetValue())
		}
	}
	for s, n := range totals {
		p := point{minute, s}
		if _, ok := h.counts[p]; n > h.last[s] && (ok || len(h.counts) < maxCounts) {
			h.counts[p] += n - h.last[s]
		}
		h.last[s] = n
	}
	return nil
}
