// SPDX-License-Identifier: Apache-2.0

// Package notifications remembers which sinks took the latest events of a process, and shows it on
// the admin port. `overdue explain` reads it there. No guarantee depends on it: a restart forgets
// everything.
package notifications

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"overdue/alert"
	"overdue/internal/escape"
)

const (
	// Capacity is how many events a History remembers: recent history for an operator, about 1 MiB.
	Capacity = 2000
	// maxShown is how many events one answer contains.
	maxShown = 100
)

// A Notification is one event and the sinks that took it.
type Notification struct {
	Event   alert.Event `json:"event"`
	TakenBy []Delivery  `json:"takenBy"`
}

// A Delivery says which sink took an event, and when.
type Delivery struct {
	Sink string    `json:"sink"`
	Time time.Time `json:"time"`
}

// A History remembers the latest notifications. The zero value is ready for use. A nil History
// stays empty.
type History struct {
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

// Alert records the event if the sink behind took it.
func (r recorder) Alert(ctx context.Context, e alert.Event) error {
	err := r.Alerter.Alert(ctx, e)
	if err == nil {
		r.history.add(e, r.Name(), time.Now().UTC())
	}
	return err
}

func (h *History) add(e alert.Event, sink string, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := h.byID[e.ID]; n != nil {
		n.TakenBy = append(n.TakenBy, Delivery{sink, at})
		return
	}
	n := &Notification{e, []Delivery{{sink, at}}}
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
	h.byID[e.ID] = n
}

// Latest returns up to 100 notifications of messages with that id, or of all messages for "". The
// latest comes first.
func (h *History) Latest(messageID string) []Notification {
	return h.Find(func(e *alert.Event) bool { return messageID == "" || e.Data.MessageID == messageID }, maxShown)
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
		if found = append(found, Notification{n.Event, slices.Clone(n.TakenBy)}); len(found) == limit {
			break
		}
	}
	return found
}

// messageIDParameter restricts an answer to one message.
const messageIDParameter = "message-id"

// ServeHTTP answers with the latest notifications as JSON. The parameter message-id restricts them
// to one message.
func (h *History) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	// Only the caller loses something if the answer cannot be written.
	_ = escape.WriteJSON(w, h.Latest(r.URL.Query().Get(messageIDParameter)))
}
