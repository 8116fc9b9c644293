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
	"overdue/internal/notifications"
	"overdue/internal/redisstore"
	"overdue/internal/slack"
)

const (
	// interval is how long what happened may wait in memory. A crash loses that much.
	interval = 5 * time.Second
	// pruneInterval is how often the file is written although nothing happened.
	pruneInterval = time.Minute
	// future is how far ahead of now an entry may lie. One beyond that was written while the clock was
	// wrong, and is the first to go when the file is full.
	future = 24 * time.Hour
	// maxPending bounds the missed deadlines that wait for the file. It is written as soon as half of
	// that waits.
	maxPending = 10_000
	// maxCounts bounds the counts that wait for it.
	maxCounts = 100_000
	// maxSlack bounds the minutes of entities that wait with their slack.
	maxSlack = 5_000
	// lateAfter is how long a write may take. A disk that hangs fails no write.
	lateAfter = 10 * time.Second
	// stopTimeout is how long a stop waits for a write.
	stopTimeout = 2 * time.Second
)

var (
	errLate      = fmt.Errorf("history: a write has taken more than %s", lateAfter)
	errAbandoned = errors.New("history: the last write has not ended; what it has is lost")
)

// Config says what is kept and where.
type Config struct {
	Directory string
	Keep      time.Duration // what is older is removed
	MaxSize   int64         // of the records; the file takes about twice as much
	Metrics   prometheus.Gatherer
	Slack     *slack.Meter        // nil measures none
	Shared    *redisstore.History // of the fleet; nil = nothing is shared
	// NoMonitor says that this process sees no missed deadlines.
	NoMonitor bool
	// Missing returns an error if there is no such queue, topic or subscription. known are names in
	// the history that may have been meant.
	Missing func(ctx context.Context, name string, known []string) error
	// Changed is called when writes begin to fail, and with nil when they succeed again.
	Changed func(error)
}

// A History is open. A nil History keeps nothing.
type History struct {
	cfg  Config
	file *file

	mu      sync.Mutex
	pending []alert.Event
	writing []alert.Event // that flush has taken off pending
	taken   []delivery
	dropped uint64            // missed deadlines that there was no room for
	lost    notifications.Gap // what was dropped since the last write
	failed  bool              // the file cannot be written
	written time.Time         // when that last succeeded; zero = not yet

	half chan struct{} // gets a value when half of what may wait is there

	last   map[series]uint64 // of Run alone: the metrics as they were last read
	counts map[point]uint64  // of Run alone: increases that are not on disk yet
	clock  clock             // of Run alone

	lastSlack map[string]slack.Counts     // of Run alone: the meter as it was last read
	slack     map[slackPoint]slack.Counts // of Run alone: increases that are not on disk yet
}

// Open opens the history in a directory, which it makes if need be. A damaged file is moved aside;
// then aside is its new name.
func Open(c Config) (h *History, aside string, err error) {
	now := time.Now()
	f, aside, err := openFile(c.Directory, now)
	if err != nil {
		return nil, aside, err
	}
	return &History{
		cfg: c, file: f, half: make(chan struct{}, 1), last: map[series]uint64{}, counts: map[point]uint64{},
		lastSlack: map[string]slack.Counts{}, slack: map[slackPoint]slack.Counts{},
		clock: newClock(f.clock, now),
	}, aside, nil
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
	if kept(&e) {
		r.history.add(&e)
	}
	return r.Alerter.Alert(ctx, e)
}

func (h *History) add(e *alert.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.pending) == maxPending {
		h.dropped++
		h.loseLocked(e.Data.Deadline)
		return
	}
	h.pending = append(h.pending, *e)
	h.noticeHalf(len(h.pending))
}

// noticeHalf has the file written early, once for each time that so much waits: a file that cannot
// be written is tried at the interval.
func (h *History) noticeHalf(waiting int) {
	if waiting != maxPending/2 {
		return
	}
	select {
	case h.half <- struct{}{}:
	default: // it is about to be written
	}
}

// Dropped says how many missed deadlines were not kept, because the file could not be written, or
// not fast enough.
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
		case <-h.half:
		case <-ctx.Done():
		}
		if errors.Is(h.flush(ctx, time.Now()), errAbandoned) {
			return nil // a close would wait for that write
		}
	}
	return h.file.close()
}

// flush writes everything that waits in one transaction, and shares it then. What cannot be written
// waits on.
func (h *History) flush(ctx context.Context, now time.Time) error {
	sampleErr := h.sample(now)
	h.sampleSlack(now)
	h.mu.Lock()
	b := batch{h.pending, h.counts, h.slack, h.taken, h.lost}
	idle := b.empty() && !h.failed && now.Sub(h.written).Abs() < pruneInterval
	h.mu.Unlock()
	h.clock.advance(now)
	if idle && ctx.Err() == nil { // the last write says until when the history has everything
		return nil
	}
	h.mu.Lock()
	h.pending, h.taken, h.lost, h.writing = nil, nil, notifications.Gap{}, b.events
	h.mu.Unlock()
	done := false
	err := h.await(ctx, func() error {
		err := h.file.write(b, h.clock.reads, now)
		done = err == nil
		return errors.Join(err, h.file.prune(ctx, bounds{since: h.clock.reads.Add(-h.cfg.Keep), latest: now.Add(future), maxSize: h.cfg.MaxSize}))
	})
	if errors.Is(err, errAbandoned) {
		return err
	}
	if done {
		// A stop must not take what happened last from the others.
		h.share(context.WithoutCancel(ctx), b, now)
		clear(h.counts)
		clear(h.slack)
	} else {
		h.putBack(&b)
	}
	h.mu.Lock()
	h.writing = nil
	if done {
		h.written = now
	}
	h.mu.Unlock()
	h.report(errors.Join(sampleErr, err))
	return err
}

// await calls write and returns what it returns. It reports one that is late, and leaves one behind
// that does not end soon after ctx.
func (h *History) await(ctx context.Context, write func() error) error {
	written := make(chan error, 1)
	go func() { written <- write() }()
	late := time.NewTimer(lateAfter)
	defer late.Stop()
	ended, tooLong := ctx.Done(), (<-chan time.Time)(nil)
	for {
		select {
		case err := <-written:
			return err
		case <-late.C:
			h.report(errLate)
		case <-ended:
			ended, tooLong = nil, time.After(stopTimeout)
		case <-tooLong:
			h.cfg.Changed(errAbandoned)
			return errAbandoned
		}
	}
}

// report says when writes begin to fail, and when they succeed again.
func (h *History) report(err error) {
	h.mu.Lock()
	changed := h.failed != (err != nil)
	h.failed = err != nil
	h.mu.Unlock()
	if changed {
		h.cfg.Changed(err)
	}
}

func (h *History) putBack(b *batch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.taken = append(b.taken, h.taken...)
	h.taken = h.taken[:min(len(h.taken), maxPending)]
	h.pending = append(b.events, h.pending...)
	for _, e := range h.pending[min(len(h.pending), maxPending):] {
		h.dropped++
		h.loseLocked(e.Data.Deadline)
	}
	h.pending = h.pending[:min(len(h.pending), maxPending)]
	if !b.gap.To.IsZero() {
		h.loseLocked(b.gap.From)
		h.loseLocked(b.gap.To)
	}
}

// counted are the metrics whose increases are kept, with the labels that name what was counted and
// how it ended.
var counted = map[string]struct{ kind, name, result string }{
	"overdue_sends_total":     {"sends", "entity", "result"},
	"overdue_deadlines_total": {"deadlines", "entity", "verdict"},
	"overdue_alerts_total":    {"alerts", "sink", "result"},

	"overdue_outstanding_deadlines": {kindOutstanding, "entity", ""},
}

// kindOutstanding are deadlines that have come and have no verdict yet: a message is in flight, or
// is being expired. That is a gauge, of which the highest value of a minute is kept.
const kindOutstanding = "outstanding"

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
			totals[s] += uint64(m.GetCounter().GetValue() + max(m.GetGauge().GetValue(), 0))
		}
	}
	for s, n := range totals {
		p := point{minute, s}
		was, known := h.counts[p]
		switch {
		case !known && len(h.counts) >= maxCounts && n != h.last[s]:
			h.lose(now)
		case s.kind == kindOutstanding && n > was:
			h.counts[p] = n
		case s.kind != kindOutstanding && n > h.last[s]:
			h.counts[p] += n - h.last[s]
		}
		h.last[s] = n
	}
	return nil
}
