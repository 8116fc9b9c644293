// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"overdue/internal/escape"
)

const (
	// maxStreams bounds the open pages of a port that are kept up to date. The admin port has 128
	// connections, and probes need theirs.
	maxStreams = 8
	// streamTime ends before the admin port would cut an answer; the browser connects again.
	streamTime     = 90 * time.Second
	streamInterval = 2 * time.Second
	// checkInterval is the time between checks, and what else goes out, while somebody views the
	// dashboard. None are made for nobody.
	checkInterval = 10 * time.Second
	checkTimeout  = 3 * time.Second
	// checksLast is for how long an answer says that all is well.
	checksLast = 30 * time.Second
)

// Run takes samples, makes checks while somebody views the dashboard, and runs actions. It ends
// with ctx, and with it actions and streams end.
func (d *Dashboard) Run(ctx context.Context) {
	defer close(d.streams.ended)
	var jobs sync.WaitGroup
	defer jobs.Wait()
	tick := time.NewTicker(sampleInterval)
	defer tick.Stop()
	d.Sample()
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.check:
			d.ask(ctx)
		case j := <-d.messages.jobs.starts:
			jobs.Go(func() { d.actions.runJob(ctx, j) })
		case <-tick.C:
			d.Sample()
		}
	}
}

// Sample takes a sample of the lags for the graphs. Run does so every ten seconds.
func (d *Dashboard) Sample() {
	r, err := read(d.source.Metrics)
	if err != nil {
		return // a page reads the same metrics, and shows the error
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.samples.take(r)
}

// wantChecks makes Run check, unless it did a short time ago.
func (d *Dashboard) wantChecks() {
	d.mu.Lock()
	fresh := !d.outside.at.IsZero() && time.Since(d.outside.at) < checkInterval
	d.mu.Unlock()
	if fresh {
		return
	}
	select {
	case d.check <- struct{}{}:
	default: // somebody wants them already
	}
}

// live returns what a stream keeps up to date: templates by the id of the element that they fill,
// and a function that reads what they show.
func (d *Dashboard) live(r *http.Request) (parts []string, read func() (any, error), err error) {
	switch parameter(r, "page") {
	case "":
		o := readOverviewOptions(r)
		return []string{"demo", "well", "cards", "entities", "queues", "missed", "fleet", "unknown", "blind", "health", "sinks"}, func() (any, error) {
			d.wantChecks()
			return d.view(o)
		}, nil
	case "entity":
		name := parameter(r, "name")
		return []string{"figures", "lag", "slack", "missed", "unknown"}, func() (any, error) { return d.entityView(name) }, nil
	case "action":
		j := d.messages.jobs.find(parameter(r, "id"))
		if j == nil {
			return nil, nil, errNoJob
		}
		return []string{"action"}, func() (any, error) { return d.actions.jobView(j), nil }, nil
	}
	return nil, nil, errors.New("there is no such page")
}

// events keeps a page up to date.
func (d *Dashboard) events(w http.ResponseWriter, r *http.Request) {
	parts, read, err := d.live(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	d.streams.serve(w, r, parts, read)
}

// streams are the pages that are kept up to date.
type streams struct {
	open  chan struct{} // holds a value for each of them
	ended chan struct{} // closed when all have to end; nil: each ends with its request
}

// serve sends the parts of a page that have changed, as {"id": "markup"}.
func (s *streams) serve(w http.ResponseWriter, r *http.Request, parts []string, read func() (any, error)) {
	// Another site cannot read the stream, but it could open so many that none are left.
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" {
		http.Error(w, "only the page itself may open this stream", http.StatusForbidden)
		return
	}
	select {
	case s.open <- struct{}{}:
		defer func() { <-s.open }()
	default:
		w.Header().Set("Retry-After", "30")
		http.Error(w, fmt.Sprintf("%d pages are kept up to date already; close one, or reload this page by hand", maxStreams), http.StatusServiceUnavailable)
		return
	}
	// The admin port bounds the time to read a request, which would end the stream with it. A writer
	// without deadlines, as in a test, needs none lifted.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	ctx, cancel := context.WithTimeout(r.Context(), streamTime)
	defer cancel()
	tick := time.NewTicker(streamInterval)
	defer tick.Stop()
	sent := map[string]string{}
	for {
		if err := send(w, parts, read, sent); err != nil {
			return // the reader is gone, or the browser connects again and shows that it cannot
		}
		select {
		case <-ctx.Done():
			return
		case <-s.ended:
			return
		case <-tick.C:
		}
	}
}

// send writes one event, and remembers what it has sent.
func send(w http.ResponseWriter, parts []string, read func() (any, error), sent map[string]string) error {
	v, err := read()
	if err != nil {
		return err
	}
	changed := map[string]string{}
	for _, part := range parts {
		var markup bytes.Buffer
		if err := pages().ExecuteTemplate(&markup, part, v); err != nil {
			return fmt.Errorf("render %s: %w", part, err)
		}
		if text := markup.String(); text != sent[part] {
			sent[part], changed[part] = text, text
		}
	}
	data, err := json.Marshal(changed)
	if err != nil {
		return fmt.Errorf("write an event: %w", err)
	}
	if _, err := fmt.Fprintf(w, "data: %s\n\n", escape.JSON(data)); err != nil {
		return fmt.Errorf("write an event: %w", err)
	}
	return http.NewResponseController(w).Flush()
}
