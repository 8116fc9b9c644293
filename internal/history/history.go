// SPDX-License-Identifier: Apache-2.0

// Package history remembers what happened. In memory it has the latest events, the sinks that took
// them, and those that have still to get them and why. In a directory it also keeps missed
// deadlines in full, and counts of sends, outcomes, settlements and deliveries for each minute. That
// is one file, bounded by age and by size. No guarantee depends on it, so a file that cannot be
// written costs history and nothing else.
//
// Counts are the increases of the metrics, read every few seconds. Nothing is added to the path of
// a send or of a verdict; an event is one entry in memory.
//
//	events ─▶ memory ─┐
//	                  ├─ every 5 s ─▶ file ─▶ Redis, for the fleet
//	metrics ──────────┘
//
// The process that runs has the file for itself. Others read it over the admin port ([Fetch],
// [FetchNotifications]).
package history

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"overdue/alert"
	"overdue/internal/redisstore"
	"overdue/internal/slack"
)

const (
	// Capacity is how many events are in memory, those that wait for the file included: about 5 MiB.
	Capacity = 10_000
	// restored is how many missed deadlines are in memory again after a start.
	restored = 2000
	// maxShown is how many notifications one answer contains.
	maxShown = 100
)

// Config says what is kept and where.
type Config struct {
	Directory string
	Keep      time.Duration // what is older is removed
	MaxSize   int64         // of the records; the file takes about twice as much
	Metrics   prometheus.Gatherer
	Shared    *redisstore.History // of the fleet; nil = nothing is shared
	// NoMonitor says that this process sees no missed deadlines.
	NoMonitor bool
	// Missing returns an error if there is no such queue, topic or subscription. known are names in
	// the history that may have been meant.
	Missing func(ctx context.Context, name string, known []string) error
	// Changed is called when writes begin to fail, and with nil when they succeed again. May be nil.
	Changed func(error)
}

// A History remembers notifications. The zero value does so in memory.
type History struct {
	cfg   Config
	file  *store // nil = none
	began time.Time

	mu        sync.Mutex
	latest    []*entry // once it is full, the oldest is at next
	next      int
	byID      map[string]*entry        // the same, by the id of the event
	unwritten int                      // events that came since the last write
	dropped   uint64                   // missed deadlines that left the memory before they were written
	lost      Gap                      // what was dropped since the last write
	failed    bool                     // the file cannot be written
	written   time.Time                // when that last succeeded; zero = not yet
	last      map[series]slack.Buckets // what was counted by the last write
	totals    totals
	unknown   verdictRing
	seen      time.Time // see Saw

	half chan struct{} // gets a value while half of what may wait is there

	clock slowClock // of Run alone
}

// A Notification is one event, the sinks that took it, and those that have not taken it so far. A
// sink of groups takes the events of a notification at once.
type Notification struct {
	Event   alert.Event `json:"event"`
	TakenBy []Delivery  `json:"takenBy"`
	Waiting []Delivery  `json:"waiting,omitempty"`
}

// A Delivery says what became of an event for one sink.
type Delivery struct {
	Sink  string    `json:"sink"`
	Time  time.Time `json:"time"`            // when the sink took the event; or since when it waits
	State State     `json:"state,omitempty"` // of one that waits
	Error string    `json:"error,omitempty"` // why the latest attempt failed

	group string    // of a sink of groups
	due   time.Time // of the digest with the event, likewise
}

// State is why an event waits for a sink.
type State string

// States of an event that waits.
const (
	Queued State = "queued" // it was not tried yet, or the sink asked for a pause
	Failed State = "failed" // the latest attempt failed; another one follows
)

// An entry is a notification in memory.
type entry struct {
	Notification
	stored  int  // deliveries that the file has, plus one; 0 = it has not even the event
	inWrite bool // a write that has not ended has it
}

// waitsForFile reports whether the file has yet to get something of it.
func (e *entry) waitsForFile() bool { return isKept(&e.Event) && e.stored <= len(e.TakenBy) }

// isKept reports whether an event is for the file.
func isKept(e *alert.Event) bool {
	return e.Type == alert.TypeMissed || e.Type == alert.TypeIncomplete || e.Blind != nil
}

// placeOf is where the file has an event that is kept.
func placeOf(e *alert.Event) (at time.Time, of kind) {
	if e.Blind != nil {
		return e.Blind.To, kindBlind
	}
	return e.Data.Deadline, kindMissed
}

// InMemory returns a history that ends with the process. It needs no Directory.
func InMemory(c Config) *History { return newHistory(c, time.Now()) }

func newHistory(c Config, now time.Time) *History {
	if c.Changed == nil {
		c.Changed = func(error) {}
	}
	return &History{
		cfg:    c,
		began:  now,
		half:   make(chan struct{}, 1),
		last:   map[series]slack.Buckets{},
		totals: newTotals(now.UTC()),
	}
}

// Open opens the history in its directory, which it makes if need be, and begins with the latest
// missed deadlines that are there. A damaged file is moved aside; then aside is its new name.
func Open(c Config) (h *History, aside string, err error) {
	now := time.Now()
	h = newHistory(c, now)
	if h.file, aside, err = openStore(c.Directory, now); err != nil {
		return nil, aside, err
	}
	h.clock.resume(h.file.clock, now)
	h.totals, h.unknown.latest = h.file.totals, h.file.unknown
	h.seen = h.file.seen
	var latest []*entry
	// Records that cannot be read are left out: they are no reason to keep no history.
	for _, of := range []kind{kindMissed, kindBlind} {
		n := len(latest)
		_ = h.file.each(of, time.Time{}, func(_ time.Time, _ string, v []byte) bool {
			if n := decode(v); n.Event.ID != "" {
				latest = append(latest, &entry{Notification: n, stored: len(n.TakenBy) + 1})
			}
			return len(latest)-n < restored
		})
	}
	for _, e := range slices.Backward(latest) {
		h.insertLocked(e) // nobody else has h yet
	}
	return h, aside, nil
}

// Saw notes that the monitor saw all deadlines until an instant. The file has that a minute later at
// the latest.
func (h *History) Saw(at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen = at
}

// LastSeen returns until when the monitor of an earlier process saw deadlines, as the file has it.
// Zero: that is not known.
func (h *History) LastSeen() time.Time {
	if !h.HasFile() || h.file.seen.Unix() <= 0 {
		return time.Time{}
	}
	return h.file.seen
}

// HasFile reports whether h outlives the process.
func (h *History) HasFile() bool { return h.file != nil }

// Record returns a sink that passes its events on to a, and records those that a took.
func (h *History) Record(a alert.Alerter) alert.Alerter { return recorder{a, h} }

type recorder struct {
	alert.Alerter
	history *History
}

// Unwrap returns the sink behind the recorder.
func (r recorder) Unwrap() alert.Alerter { return r.Alerter }

// Alert records the event if the sink behind took it. That of a sink of groups takes it later, see
// [History.Notified].
func (r recorder) Alert(ctx context.Context, e alert.Event) error {
	err := r.Alerter.Alert(ctx, e)
	if _, isGrouped := alert.Find[*alert.Groups](r.Alerter); err == nil && !isGrouped {
		r.history.took(&e, r.Name(), time.Now())
	}
	return err
}

// Untaken records that the sink behind has not taken the event so far: err says why, nil that it
// only waits.
func (r recorder) Untaken(e alert.Event, err error) {
	d := Delivery{Sink: r.Name(), Time: time.Now().UTC(), State: Queued}
	if err != nil {
		d.State, d.Error = Failed, err.Error()
	}
	r.history.wait(&e, d)
}

// Queued records that an event waits for a notification of its group.
func (h *History) Queued(sink, group string, due time.Time, e *alert.Event) {
	h.wait(e, Delivery{Sink: sink, Time: time.Now().UTC(), State: Queued, group: group, due: due})
}

// Notified records the result of a notification for all events of a group that were due by then.
func (h *History) Notified(sink, group string, due time.Time, refused error) {
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.latest {
		i := e.waitsFor(sink)
		if i < 0 || e.Waiting[i].group != group || e.Waiting[i].due.After(due) {
			continue
		}
		if refused != nil {
			e.Waiting[i].State, e.Waiting[i].Error = Failed, refused.Error()
			continue
		}
		e.take(sink, now)
	}
}

// waitsFor returns the index of a sink among those that have not taken the event, or -1.
func (n *Notification) waitsFor(sink string) int {
	return slices.IndexFunc(n.Waiting, func(d Delivery) bool { return d.Sink == sink })
}

func (n *Notification) take(sink string, now time.Time) {
	if i := n.waitsFor(sink); i >= 0 {
		n.Waiting = slices.Delete(n.Waiting, i, i+1)
	}
	n.TakenBy = append(n.TakenBy, Delivery{Sink: sink, Time: now.UTC()})
}

func (h *History) took(e *alert.Event, sink string, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.entryLocked(e).take(sink, now)
}

// Note records an event that another process may notify of.
func (h *History) Note(e *alert.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.entryLocked(e)
}

// wait records that a sink has not taken an event so far.
func (h *History) wait(e *alert.Event, d Delivery) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.entryLocked(e)
	if i := n.waitsFor(d.Sink); i >= 0 {
		d.Time = n.Waiting[i].Time
		n.Waiting[i] = d
		return
	}
	n.Waiting = append(n.Waiting, d)
}

// entryLocked returns the entry of an event.
func (h *History) entryLocked(e *alert.Event) *entry {
	known := h.byID[e.ID]
	if known == nil {
		known = &entry{Notification: Notification{Event: *e, TakenBy: []Delivery{}}}
		h.insertLocked(known)
		h.askForWriteLocked()
	}
	return known
}

// insertLocked adds an entry, in the place of the oldest if the memory is full.
func (h *History) insertLocked(e *entry) {
	if h.byID == nil {
		h.byID = map[string]*entry{}
	}
	h.byID[e.Event.ID] = e
	if len(h.latest) < Capacity {
		h.latest = append(h.latest, e)
		return
	}
	oldest := h.latest[h.next]
	delete(h.byID, oldest.Event.ID)
	if !oldest.inWrite {
		h.dropLocked(oldest)
	}
	h.latest[h.next] = e
	h.next = (h.next + 1) % Capacity
}

// dropLocked notes that an entry has left the memory. It counts if the file was to have its event.
func (h *History) dropLocked(e *entry) {
	if h.HasFile() && isKept(&e.Event) && e.stored == 0 {
		h.dropped++
		at, _ := placeOf(&e.Event)
		h.lost.include(at)
	}
}

// Find returns up to limit notifications in memory that match. The latest comes first.
func (h *History) Find(match func(*alert.Event) bool, limit int) []Notification {
	found := []Notification{}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.latest {
		n := h.latest[(h.next+len(h.latest)-1-i)%len(h.latest)].Notification
		if !match(&n.Event) {
			continue
		}
		n.TakenBy, n.Waiting = slices.Clone(n.TakenBy), slices.Clone(n.Waiting)
		if found = append(found, n); len(found) == limit {
			break
		}
	}
	return found
}
