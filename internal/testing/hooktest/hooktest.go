// SPDX-License-Identifier: Apache-2.0

// Package hooktest has a webhook on a network in memory that records the events it gets.
package hooktest

import (
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"overdue/internal/testing/pipenet"
)

// A Hook accepts CloudEvents, each in a request of its own. The zero value is ready to use.
type Hook struct {
	mu     sync.Mutex
	events []Event
	status int           // of the answers; 0: 200
	delay  time.Duration // of the answers
}

// An Event is what tests check of a CloudEvent.
type Event struct {
	ID, Type, Source, Subject string
	Data                      struct {
		SequenceNumber   int64
		LagMs            int64
		Entity           string
		Subscription     string
		SessionID        string
		Strategy         string
		Evidence         string
		DeadLetterReason string
		DeadlineKind     string
		State            string
		WarnBeforeMs     int64
		EnqueuedTime     time.Time
		Deadline         time.Time
		DeadLetteredTime time.Time
	}
}

// New serves a hook at a host of the network until the test ends.
func New(t *testing.T, network *pipenet.Network, host string) *Hook {
	h := &Hook{}
	ln, err := network.Listen(host)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h}
	go func() { _ = srv.Serve(ln) }()
	t.Cleanup(func() { _ = srv.Close() })
	return h
}

// ServeHTTP records an event, unless Answer has set a status other than 200.
func (h *Hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var e Event
	if err == nil {
		err = json.Unmarshal(body, &e)
	}
	h.mu.Lock()
	delay := h.delay
	h.mu.Unlock()
	time.Sleep(delay)
	h.mu.Lock()
	defer h.mu.Unlock()
	status := cmp.Or(h.status, http.StatusOK)
	switch {
	case err != nil:
		status = http.StatusBadRequest
	case status == http.StatusOK:
		h.events = append(h.events, e)
	}
	w.WriteHeader(status)
}

// Answer sets the status of later answers.
func (h *Hook) Answer(status int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status = status
}

// Delay sets the time from the end of a request to its answer.
func (h *Hook) Delay(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.delay = d
}

// Events returns the accepted events so far.
func (h *Hook) Events() []Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.events)
}

// Subjects returns their message-ids, sorted, with repetitions.
func (h *Hook) Subjects() []string {
	var ids []string
	for _, e := range h.Events() {
		ids = append(ids, e.Subject)
	}
	slices.Sort(ids)
	return ids
}
