// SPDX-License-Identifier: Apache-2.0

// Package web is the dashboard on the admin port: pages that the server renders, and a stream of
// events that keeps them up to date. It only reads. Each figure comes from the metrics of the
// process, so that a page and a Prometheus never disagree.
package web

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"overdue/alert"
	"overdue/internal/escape"
	"overdue/internal/notifications"
)

// Path is where the admin port serves a [Dashboard].
const Path = "/dashboard/"

const (
	maxQuery   = 200 // bytes of a search
	maxMatches = 50  // missed deadlines on one page
)

// A Source is the process that a dashboard shows. All fields but Missed and Canary are required.
type Source struct {
	Role, Version string
	State         func() string
	Metrics       prometheus.Gatherer
	Checks        func(context.Context) []Check // may go out, and returns when the context ends
	Settings      func() any                    // in force, without secrets
	Canary        string                        // the queue of the canary, which is not shown; "" without one

	// Missed finds the latest missed deadlines; nil without a monitor.
	Missed func(match func(*alert.Event) bool, limit int) []notifications.Notification
}

// A Check is the answer of one check of the process.
type Check struct {
	Name    string
	Failed  bool
	Message string // why it failed, or a remark
}

// A Dashboard shows one process.
type Dashboard struct {
	source Source
	mux    *http.ServeMux

	mu      sync.Mutex
	samples samples
	checks  []Check
	checked time.Time // of checks; zero = never

	streams chan struct{} // holds a value for each stream that is open
	ended   chan struct{} // closed when Run ends
	check   chan struct{} // has a value when somebody waits for new checks
}

//go:embed assets
var assets embed.FS

var pages = template.Must(template.New("").Funcs(template.FuncMap{"text": escape.Text}).ParseFS(assets, "assets/*.html"))

// New makes a dashboard. [Dashboard.Run] takes its samples.
func New(s Source) *Dashboard {
	d := &Dashboard{
		source: s, mux: http.NewServeMux(),
		streams: make(chan struct{}, maxStreams), ended: make(chan struct{}), check: make(chan struct{}, 1),
	}
	files, err := fs.Sub(assets, "assets")
	if err != nil {
		panic(err) // the name is a constant
	}
	d.mux.HandleFunc("GET "+Path+"{$}", d.overview)
	d.mux.HandleFunc("GET "+Path+"events", d.events)
	for _, name := range []string{"style.css", "dashboard.js", "icon.svg"} {
		d.mux.HandleFunc("GET "+Path+name, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "no-cache") // another version may be served at the same address
			http.ServeFileFS(w, r, files, name)
		})
	}
	return d
}

// policy lets a page load what this handler serves, and nothing else. It allows no inline script or
// style, so that markup in a message-id stays text even if a template forgot to escape it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP serves the pages below [Path]. The caller decides who may see them.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	d.mux.ServeHTTP(w, r)
}

// query returns the search of a request, cut to a length that costs little.
func query(r *http.Request) string {
	q := strings.TrimSpace(r.URL.Query().Get("q"))
	if len(q) > maxQuery {
		q = q[:maxQuery]
	}
	for !utf8.ValidString(q) && q != "" {
		q = q[:len(q)-1]
	}
	return q
}

func (d *Dashboard) overview(w http.ResponseWriter, r *http.Request) {
	d.wantChecks()
	v, err := d.view(query(r))
	if err == nil {
		v.Settings, err = settings(d.source.Settings())
	}
	var page bytes.Buffer
	if err == nil {
		err = pages.ExecuteTemplate(&page, "overview.html", v)
	}
	if err != nil {
		http.Error(w, escape.Lines("the dashboard cannot be shown: "+err.Error()), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = page.WriteTo(w) // an error is the caller's loss only
}

// settings returns the settings as text. The page escapes markup, so the JSON need not.
func settings(in any) (string, error) {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(in); err != nil {
		return "", fmt.Errorf("show the configuration: %w", err)
	}
	return string(escape.JSON(bytes.TrimSpace(text.Bytes()))), nil
}
