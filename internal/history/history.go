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
	"maps"
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
	cfg   Config
	store *store

	mu      sync.Mutex
	missed  map[string]notifications.Notification // that are not on disk yet, by their key there
	dropped uint64                                // missed deadlines that there was no room for
	lost    notifications.Gap                     // what was dropped since the last write
	failed  bool                                  // the file cannot be written
	written time.Time                             // when that last succeeded; zero = not yet

	half chan struct{} // gets a value while half of what may wait is there

	last   map[series]slack.Counts // of Run alone: what was counted when it was last read
	counts map[point]slack.Counts  // of Run alone: increases that are not on disk yet
	clock  time.Time               // of Run alone: what is older than Keep by it is removed
	read   time.Time               // of Run alone: the machine's clock at the last reading, with its monotonic reading
}

// Open opens the history in a directory, which it makes if need be. A damaged file is moved aside;
// then aside is its new name.
func Open(c Config) (h *History, aside string, err error) {
	now := time.Now()
	s, aside, err := openStore(c.Directory, now)
	if err != nil {
		return nil, aside, err
	}
	h = &History{
		cfg:    c,
		store:  s,
		missed: map[string]notifications.Notification{},
		half:   make(chan struct{}, 1),
		last:   map[series]slack.Counts{},
		counts: map[point]slack.Counts{},
	}
	h.resume(s.clock, now)
	return h, aside, nil
}

// resume sets the clock to where it stopped. stopped is zero for the first.
func (h *History) resume(stopped, now time.Time) {
	h.clock, h.read = stopped, now
	if stopped.IsZero() || stopped.After(now) {
		h.clock = now
	}
}

// advance has the clock follow the machine's, but at most twice as fast as time passes. If the
// machine's clock jumps ahead, by mistake or after a long stop, the history does not lose
// everything at once.
func (h *History) advance(now time.Time) {
	passed := max(now.Sub(h.read), 0) // on the monotonic clock
	h.read = now
	if h.clock = h.clock.Add(2 * passed); h.clock.After(now) {
		h.clock = now
	}
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
	if isRecorded(&e) {
		r.history.add(&e)
	}
	return r.Alerter.Alert(ctx, e)
}

func isRecorded(e *alert.Event) bool {
	return e.Type == alert.TypeMissed || e.Type == alert.TypeIncomplete
}

// Took keeps that a sink took the event of a missed deadline. It never waits for the disk.
func (h *History) Took(e *alert.Event, sink string, at time.Time) {
	if h != nil && isRecorded(e) {
		h.add(e, notifications.Delivery{Sink: sink, Time: at.UTC()})
	}
}

// add keeps a missed deadline once, however often it is notified, and all its deliveries.
func (h *History) add(e *alert.Event, by ...notifications.Delivery) {
	key := string(keyOf(e.Data.Deadline.Unix(), kindMissed, e.ID))
	h.mu.Lock()
	defer h.mu.Unlock()
	was, known := h.missed[key]
	if !known && len(h.missed) == maxPending {
		if len(by) == 0 { // else the event itself was counted
			h.dropped++
			h.loseLocked(e.Data.Deadline)
		}
		return
	}
	h.missed[key] = merge(was, notifications.Notification{Event: *e, TakenBy: by})
	if len(h.missed) < maxPending/2 || h.failed { // a file that cannot be written is tried at the interval
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
	return h.store.close()
}

// flush writes everything that waits in one transaction, and shares it then. Entries that cannot be
// written wait on.
func (h *History) flush(ctx context.Context, now time.Time) error {
	sampleErr := h.sample(now)
	h.advance(now)
	h.mu.Lock()
	b := batch{missed: maps.Clone(h.missed), counts: h.counts, gap: h.lost}
	idle := b.empty() && !h.failed && now.Sub(h.written).Abs() < pruneInterval
	h.mu.Unlock()
	if idle && ctx.Err() == nil { // the last write says until when the history has everything
		return nil
	}
	done := false
	err := h.await(ctx, func() error {
		err := h.store.write(&b, h.clock, now)
		done = err == nil
		return errors.Join(err, h.store.prune(ctx, h.clock.Add(-h.cfg.Keep), now.Add(future), h.cfg.MaxSize))
	})
	if errors.Is(err, errAbandoned) {
		return err
	}
	if done {
		// A stop must not take what happened last from the others.
		h.share(context.WithoutCancel(ctx), b, now)
		h.forget(b, now)
	}
	h.report(errors.Join(sampleErr, err))
	return err
}

// forget ends the wait of what is on disk.
func (h *History) forget(b batch, now time.Time) {
	clear(h.counts)
	h.mu.Lock()
	defer h.mu.Unlock()
	for k, n := range b.missed {
		if len(h.missed[k].TakenBy) == len(n.TakenBy) { // else a sink took it meanwhile
			delete(h.missed, k)
		}
	}
	if h.lost == b.gap {
		h.lost = notifications.Gap{}
	}
	h.written = now
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

// counted are the metrics whose increases are kept, with the labels that name what was counted and
// how it ended.
var counted = map[string]struct{ kind, name, result string }{
	"overdue_sends_total":     {"sends", "entity", "result"},
	"overdue_deadlines_total": {"deadlines", "entity", "verdict"},
	"overdue_alerts_total":    {"alerts", "sink", "result"},

	"overdue_outstanding_deadlines": {kindOutstanding, "entity", ""},
}

// kindSlack are settlements, by entity.
const kindSlack = "slack"

// kindOutstanding are deadlines that have come and have no verdict yet: a message is in flight, or
// is being expired. That is a gauge, of which the highest value of a minute is kept.
const kindOutstanding = "outstanding"

// A series is what is counted: sends, deadlines and slack by entity, alerts by sink.
type series struct{ kind, name, result string }

// A point is a series in one minute, as seconds since 1970.
type point struct {
	minute int64
	series
}

// add returns what a series has in a minute if both were counted there.
func (s series) add(was, more slack.Counts) slack.Counts {
	if s.kind == kindOutstanding {
		return slack.Counts{0: max(was[0], more[0])}
	}
	was.Merge(more)
	return was
}

// sample reads the metrics and the meter, and adds the increases to the present minute.
func (h *History) sample(now time.Time) error {
	families, err := h.cfg.Metrics.Gather()
	if err != nil && len(families) == 0 {
		return fmt.Errorf("history: read the metrics: %w", err)
	}
	totals := map[series]slack.Counts{}
	for name, c := range h.cfg.Slack.Read() {
		totals[series{kind: kindSlack, name: name}] = c
	}
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
			n := uint64(m.GetCounter().GetValue() + max(m.GetGauge().GetValue(), 0))
			totals[s] = slack.Counts{0: totals[s][0] + n}
		}
	}
	minute := now.Truncate(time.Minute).Unix()
	for s, all := range totals {
		more := all
		if s.kind != kindOutstanding {
			more = all.Since(h.last[s])
		}
		h.last[s] = all
		h.count(point{minute, s}, more, now)
	}
	return nil
}

// count adds an increase to those that wait.
func (h *History) count(p point, more slack.Counts, now time.Time) {
	was, known := h.counts[p]
	switch {
	case len(more) == 0 || p.kind == kindOutstanding && more[0] == 0:
	case known:
		h.counts[p] = p.add(was, more)
	case len(h.counts) == maxCounts:
		h.lose(now)
	default:
		h.counts[p] = more
	}
}
