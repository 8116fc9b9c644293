// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"overdue/alert"
	"overdue/internal/redisstore"
	"overdue/internal/slack"
)

const (
	// interval is how long what happened may wait in memory. A crash loses that much.
	interval = 5 * time.Second
	// pruneInterval is how often the file is written although nothing happened.
	pruneInterval = time.Minute
	// lateAfter is how long a write may take. A disk that hangs fails no write.
	lateAfter = 10 * time.Second
	// stopTimeout is how long a stop waits for a write.
	stopTimeout = 2 * time.Second
)

var (
	errLate      = fmt.Errorf("history: a write has taken more than %s", lateAfter)
	errAbandoned = errors.New("history: the last write has not ended; what it has is lost")
)

// A slowClock says what is too old.
type slowClock struct {
	now  time.Time
	read time.Time // the machine's clock at the last reading, with its monotonic reading
}

// resume sets the clock to where it stopped. stopped is zero for the first.
func (c *slowClock) resume(stopped, now time.Time) {
	c.now, c.read = stopped, now
	if stopped.IsZero() || stopped.After(now) {
		c.now = now
	}
}

// advance has the clock follow the machine's, but at most twice as fast as time passes. If the
// machine's clock jumps ahead, by mistake or after a long stop, the history does not lose
// everything at once.
func (c *slowClock) advance(now time.Time) {
	passed := max(now.Sub(c.read), 0) // on the monotonic clock
	c.read = now
	if c.now = c.now.Add(2 * passed); c.now.After(now) {
		c.now = now
	}
}

// askForWriteLocked has Run write early, if half of the memory has come since the last write. A
// file that cannot be written is tried at the interval.
func (h *History) askForWriteLocked() {
	if h.unwritten++; h.unwritten < Capacity/2 || h.failed {
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

// Run writes what happened until ctx ends, then once more, and closes the file. It does not wait
// for a disk that hangs.
func (h *History) Run(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- h.writeUntil(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(stopTimeout):
		h.cfg.Changed(errAbandoned)
		return nil
	}
}

func (h *History) writeUntil(ctx context.Context) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	// The file must not wait for a Redis that is slow.
	var sharing sync.WaitGroup
	written := make(chan *batch, 2)
	sharing.Go(func() {
		for b := range written {
			h.share(context.WithoutCancel(ctx), b) // a stop must not take what happened last from the others
		}
	})
	for ctx.Err() == nil {
		select {
		case <-ticker.C:
		case <-h.half:
		case <-ctx.Done():
		}
		if b := h.flush(ctx, time.Now()); b != nil && h.cfg.Shared != nil {
			written <- b
		}
	}
	close(written)
	defer sharing.Wait() // the file is closed before, however slow Redis is
	if h.file == nil {
		return nil
	}
	return h.file.close()
}

// flush writes everything that waits in one transaction, and returns it. Records that cannot be
// written wait on. Then, and if nothing happened, flush returns nil.
func (h *History) flush(ctx context.Context, now time.Time) *batch {
	if h.file == nil {
		return h.count(now)
	}
	late := time.AfterFunc(lateAfter, func() { h.report(errLate) })
	defer late.Stop()
	sampled, sampleErr := h.sample()
	h.clock.advance(now)
	b := h.beginWrite(sampled, now)
	h.mu.Lock()
	idle := b.empty() && !h.failed && now.Sub(h.written).Abs() < pruneInterval
	h.mu.Unlock()
	if idle && ctx.Err() == nil { // the last write says until when the history has everything
		return nil
	}
	err := h.file.write(b, h.clock.now, now)
	h.endWrite(b, now, err)
	pruneErr := h.file.prune(ctx, h.clock.now.Add(-h.cfg.Keep), now.Add(future), h.cfg.MaxSize)
	late.Stop()
	h.report(errors.Join(sampleErr, err, pruneErr))
	if err != nil {
		return nil
	}
	return b
}

// count does without a file what a write does with one: it adds up the verdicts, and finds what is to
// be shared.
func (h *History) count(now time.Time) *batch {
	sampled, _ := h.sample() // what cannot be read now is counted later
	b := h.beginWrite(sampled, now)
	for _, e := range b.entries {
		if _, of := placeOf(&e.Event); of == kindMissed && e.stored == 0 {
			b.added = append(b.added, e.Event)
		}
	}
	h.endWrite(b, now, nil)
	return b
}

// beginWrite returns what waits, which counts as dropped no sooner than the write has failed.
func (h *History) beginWrite(sampled map[series]slack.Buckets, now time.Time) *batch {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.waitingLocked(sampled, now)
	for _, e := range b.entries {
		e.inWrite = true
	}
	return b
}

// waiting returns the missed deadlines that the file has yet to get.
func (h *History) waiting() []Notification {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.waitingLocked(nil, time.Time{}).missed
}

// waitingLocked returns what the file has yet to get. Counts since the last write are of the present
// minute.
func (h *History) waitingLocked(sampled map[series]slack.Buckets, now time.Time) *batch {
	b := &batch{
		sampled: sampled,
		minute:  now.Truncate(time.Minute),
		counts:  map[series]slack.Buckets{},
		totals:  map[series]uint64{},
		unknown: h.unknown.unsaved(),
		judged:  h.unknown.added,
		seen:    h.seen,
		gap:     h.lost,
	}
	for s, all := range sampled {
		more := all
		if s.kind != kindOutstanding {
			more = all.Since(h.last[s])
		}
		if len(more) > 0 {
			b.counts[s] = more
		}
		if s.isTotalled() && len(more) > 0 {
			name := h.totals.nameOf(s)
			b.totals[name] = max(b.totals[name], h.totals.ever[name]) + more[0]
		}
	}
	for _, e := range h.latest {
		if e.waitsForFile() {
			b.entries = append(b.entries, e)
			b.missed = append(b.missed, Notification{Event: e.Event, TakenBy: slices.Clone(e.TakenBy)})
		}
	}
	return b
}

// endWrite ends the wait of what is on disk, or else drops what has left the memory meanwhile.
func (h *History) endWrite(b *batch, now time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, e := range b.entries {
		e.inWrite = false
		switch {
		case err == nil:
			e.stored = len(b.missed[i].TakenBy) + 1
		case h.byID[e.Event.ID] != e:
			h.dropLocked(e)
		}
	}
	if err != nil {
		return
	}
	if h.lost == b.gap {
		h.lost = Gap{}
	}
	h.unwritten, h.written = 0, now
	h.totals.add(b)
	maps.Copy(h.last, b.sampled)
	h.unknown.saved = b.judged
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
	"overdue_sends_total":           {"sends", "entity", "result"},
	"overdue_deadlines_total":       {kindDeadlines, "entity", "verdict"},
	"overdue_alerts_total":          {"alerts", "sink", "result"},
	"overdue_outstanding_deadlines": {kindOutstanding, "entity", ""},
	slotSends:                       {kindDeadlines, "entity", ""},
}

// Messages of slots are met unless they are missed, and have no verdict of their own.
const (
	slotSends   = "overdue_slot_sends_total"
	VerdictSlot = "slot"
)

const (
	// kindOutstanding are deadlines that have come and have no verdict yet: a message is in flight, or
	// is being expired. That is a gauge, of which the highest value of a minute is kept.
	kindOutstanding = "outstanding"
	// kindLeft and kindTaken are settlements, by entity.
	kindLeft  = "left"
	kindTaken = "taken"
)

// A series is what is counted: sends, deadlines and settlements by entity, alerts by sink.
type series struct{ kind, name, result string }

// isSlack reports whether a series counts settlements.
func (s series) isSlack() bool { return s.kind == kindLeft || s.kind == kindTaken }

// add returns what a series has in a minute if both were counted there.
func (s series) add(was, more slack.Buckets) slack.Buckets {
	if s.kind == kindOutstanding {
		return slack.Buckets{0: max(was[0], more[0])}
	}
	was.Merge(more)
	return was
}

// sample reads from the metrics what has been counted, and the gauges above 0.
func (h *History) sample() (map[series]slack.Buckets, error) {
	sampled := map[series]slack.Buckets{}
	if h.cfg.Metrics == nil {
		return sampled, nil
	}
	families, err := h.cfg.Metrics.Gather()
	if err != nil && len(families) == 0 {
		return sampled, fmt.Errorf("history: read the metrics: %w", err)
	}
	for name, s := range slack.Read(families) {
		sampled[series{kind: kindLeft, name: name}], sampled[series{kind: kindTaken, name: name}] = s.Left, s.Taken
	}
	for _, f := range families {
		c := counted[f.GetName()]
		for _, m := range f.GetMetric() {
			s := series{kind: c.kind}
			if f.GetName() == slotSends {
				s.result = VerdictSlot
			}
			for _, l := range m.GetLabel() {
				switch l.GetName() {
				case c.name:
					s.name = l.GetValue()
				case c.result:
					s.result = l.GetValue()
				}
			}
			if n := m.GetCounter().GetValue() + m.GetGauge().GetValue(); s.kind != "" && n >= 1 {
				sampled[s] = slack.Buckets{0: sampled[s][0] + uint64(n)}
			}
		}
	}
	return sampled, nil
}

// share adds what has just been written to the history of the fleet: missed deadlines and unknown
// verdicts. Records that Redis does not take are in the history of this process alone.
func (h *History) share(ctx context.Context, b *batch) {
	var missed []string
	slices.SortFunc(b.added, func(a, b alert.Event) int { return a.Data.Deadline.Compare(b.Data.Deadline) }) // Redis forgets the first
	for i := range b.added {
		if v, err := json.Marshal(&b.added[i]); err == nil && len(v) <= redisstore.MostRecord {
			missed = append(missed, string(v))
		}
	}
	if len(missed) > 0 {
		// That Redis fails is reported where its circuit is.
		_ = h.cfg.Shared.Add(ctx, redisstore.MissedRecord, missed, h.cfg.Keep)
	}
	if len(b.unknown) > 0 {
		_ = h.cfg.Shared.Add(ctx, redisstore.UnknownRecord, encodeUnknown(b.unknown), h.cfg.Keep) // likewise
	}
}
