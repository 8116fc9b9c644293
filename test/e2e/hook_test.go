// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"overdue/internal/testing/pipenet"
)

// hook is a webhook that remembers what it was notified.
type hook struct {
	mu     sync.Mutex
	events []event
	status int // to answer with
}

type event struct {
	ID, Type, Source, Subject string
	Data                      struct {
		SequenceNumber   int64
		LagMs            int64
		Entity           string
		Subscription     string
		SessionID        string
		Strategy         string
		DeadLetterReason string
		DeadlineKind     string
		State            string
		WarnBeforeMs     int64
		EnqueuedTime     time.Time
		Deadline         time.Time
		DeadLetteredTime time.Time
	}
}

func newHook(t *testing.T, network *pipenet.Network, host string) *hook {
	h := &hook{status: http.StatusOK}
	ln, err := network.Listen(host)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h}
	go func() { _ = srv.Serve(ln) }()
	t.Cleanup(func() { _ = srv.Close() })
	return h
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var e event
	if err == nil {
		err = json.Unmarshal(body, &e)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if h.status == http.StatusOK {
		h.events = append(h.events, e)
	}
	w.WriteHeader(h.status)
}

// notified are the events so far.
func (h *hook) notified() []event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.events)
}

// subjects are the message-ids that were notified, sorted, with repetitions.
func (h *hook) subjects() []string {
	var ids []string
	for _, e := range h.notified() {
		ids = append(ids, e.Subject)
	}
	slices.Sort(ids)
	return ids
}
