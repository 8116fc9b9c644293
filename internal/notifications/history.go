// SPDX-License-Identifier: Apache-2.0

// Package notifications remembers which sinks have the latest events of a process, which have still
// to get them and why, and shows it on the admin port. `overdue explain` reads it there. No
// guarantee depends on it: a restart forgets everything that no [Store] keeps.
package notifications

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"overdue/alert"
	"overdue/internal/escape"
	"overdue/internal/servicebus/address"
)

const (
	// Capacity is how many events a History remembers: recent history for an operator, about 1 MiB.
	Capacity = 2000
	// maxShown is how many events one answer contains.
	maxShown = 100
)

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

// A Store keeps notifications for longer than the process lives.
type Store interface {
	// Took gets each delivery. It must not wait.
	Took(e *alert.Event, sink string, at time.Time)
	// Notifications returns notifications of messages with that id, or of all messages for "", up to
	// limit. The latest comes first. Notifications that it cannot read are left out.
	Notifications(ctx context.Context, name string, limit int) []Notification
	// Gaps returns the spans since a time of which the store may lack something.
	Gaps(since time.Time) ([]Gap, error)
}

// Open returns a History whose notifications are also in a store. It begins with the latest of
// them. nil: in memory only.
func Open(ctx context.Context, s Store) *History {
	h := &History{store: s, began: time.Now()}
	if s == nil {
		return h
	}
	for _, n := range slices.Backward(s.Notifications(ctx, "", Capacity)) {
		h.mu.Lock()
		h.insertLocked(&n)
		h.mu.Unlock()
	}
	return h
}

// A History remembers the latest notifications. The zero value is ready for use. A nil History
// stays empty.
type History struct {
	store Store // nil = none
	began time.Time

	mu     sync.Mutex
	latest []*Notification // once it is full, the oldest is at next
	next   int
	byID   map[string]*Notification // the same, by the id of the event
}

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
		r.history.add(&e, r.Name(), time.Now().UTC())
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
	now := time.Now().UTC()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range h.latest {
		i := n.waits(sink)
		if i < 0 || n.Waiting[i].group != group || n.Waiting[i].due.After(due) {
			continue
		}
		if refused != nil {
			n.Waiting[i].State, n.Waiting[i].Error = Failed, refused.Error()
			continue
		}
		h.takenLocked(n, sink, now)
	}
}

// waits returns the index of a sink among those that have not taken the event, or -1.
func (n *Notification) waits(sink string) int {
	return slices.IndexFunc(n.Waiting, func(d Delivery) bool { return d.Sink == sink })
}

func (h *History) add(e *alert.Event, sink string, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.takenLocked(h.ofLocked(e), sink, at)
}

func (h *History) takenLocked(n *Notification, sink string, at time.Time) {
	if i := n.waits(sink); i >= 0 {
		n.Waiting = slices.Delete(n.Waiting, i, i+1)
	}
	n.TakenBy = append(n.TakenBy, Delivery{Sink: sink, Time: at})
	if h.store != nil {
		h.store.Took(&n.Event, sink, at)
	}
}

// wait records that a sink has not taken an event so far.
func (h *History) wait(e *alert.Event, d Delivery) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.ofLocked(e)
	if i := n.waits(d.Sink); i >= 0 {
		d.Time = n.Waiting[i].Time
		n.Waiting[i] = d
		return
	}
	n.Waiting = append(n.Waiting, d)
}

// ofLocked returns the notification of an event.
func (h *History) ofLocked(e *alert.Event) *Notification {
	n := h.byID[e.ID]
	if n == nil {
		n = &Notification{Event: *e, TakenBy: []Delivery{}}
		h.insertLocked(n)
	}
	return n
}

func (h *History) insertLocked(n *Notification) {
	if len(h.latest) < Capacity {
		if h.byID == nil {
			h.byID = map[string]*Notification{}
		}
		h.latest = append(h.latest, n)
	} else {
		delete(h.byID, h.latest[h.next].Event.ID)
		h.latest[h.next] = n
		h.next = (h.next + 1) % Capacity
	}
	h.byID[n.Event.ID] = n
}

// Latest returns up to 100 notifications of messages with that name, see [address.Names], or of all
// messages for "". The latest comes first. Of one message it also has what the store knows.
func (h *History) Latest(ctx context.Context, name string) []Notification {
	found := h.Find(func(e *alert.Event) bool {
		return name == "" || address.Names(name, e.Data.MessageID, e.Data.SequenceNumber)
	}, maxShown)
	if h == nil || h.store == nil || name == "" {
		return found
	}
	for _, n := range h.store.Notifications(ctx, name, maxShown) {
		if !slices.ContainsFunc(found, func(o Notification) bool { return o.Event.ID == n.Event.ID }) && len(found) < maxShown {
			found = append(found, n)
		}
	}
	return found
}

// Find returns up to limit notifications that match. The latest comes first.
func (h *History) Find(match func(*alert.Event) bool, limit int) []Notification {
	found := []Notification{}
	if h == nil {
		return found
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.latest {
		n := h.latest[(h.next+len(h.latest)-1-i)%len(h.latest)]
		if !match(&n.Event) {
			continue
		}
		if found = append(found, Notification{n.Event, slices.Clone(n.TakenBy), slices.Clone(n.Waiting)}); len(found) == limit {
			break
		}
	}
	return found
}

// Gaps returns the spans of which the history may lack something. Without a store it begins with
// the process.
func (h *History) Gaps() []Gap {
	if h == nil {
		return nil
	}
	if h.store == nil {
		return Since([]Gap{{To: h.began, Reason: "this process keeps no history"}}, time.Time{})
	}
	gaps, err := h.store.Gaps(time.Time{})
	if err != nil {
		return []Gap{{To: time.Now(), Reason: err.Error()}}
	}
	return gaps
}

// nameParameter restricts an answer to one message.
const nameParameter = "message-id"

// ServeHTTP answers with the latest notifications as JSON. The parameter message-id restricts them
// to one message: its value is the message-id, or # and the sequence number.
func (h *History) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	WriteGaps(w.Header(), h.Gaps())
	// Only the caller loses something if the answer cannot be written.
	_ = escape.WriteJSON(w, h.Latest(r.Context(), r.URL.Query().Get(nameParameter)))
}
