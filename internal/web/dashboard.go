// SPDX-License-Identifier: Apache-2.0

// Package web is the dashboard on the admin port: pages that the server renders, and a stream of
// events that keeps them up to date. Each figure of the overview comes from the metrics of the
// process, so that a page and a Prometheus never disagree. The pages about messages read the
// namespace, by peeks that disturb nothing. With a token, operators resubmit and purge dead letters
// after a preview; without one, the dashboard only reads.
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
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"overdue/alert"
	"overdue/internal/escape"
	"overdue/internal/history"
	"overdue/internal/operator/deadlines"
)

// Path is where the admin port serves a [Dashboard].
const Path = "/dashboard/"

const (
	maxQuery     = 200 // bytes of a search
	maxParameter = 400 // bytes of another parameter: a topic and its subscription have 324
	maxMatches   = 50  // missed deadlines on one page
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
	Missed func(match func(*alert.Event) bool, limit int) []history.Notification
	// Gaps are the spans of which the history may lack something; nil without a history.
	Gaps func() []history.Gap

	Namespace *Namespace // nil = this process has none
}

// A Namespace is what the pages about messages read. History and Actions may be missing.
type Namespace struct {
	Deadlines   *deadlines.Source // its links are for the dashboard alone
	History     *history.History
	Names       func() []string // of queues and topics; more come from the metrics
	DeadLetters func(ctx context.Context, entity, subscription string) (alert.DeadLetters, error)
	Actions     *Actions // nil = the dashboard only reads
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

	jobs jobList
	demo atomic.Pointer[func() *Demo] // nil = this is no demo

	streams chan struct{} // holds a value for each stream that is open
	ended   chan struct{} // closed when Run ends
	check   chan struct{} // has a value when somebody waits for new checks
	reads   chan struct{} // holds a value for each page that reads the namespace
}

//go:embed assets
var assets embed.FS

// pages are parsed for the first page: most processes show none.
var pages = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{"text": escape.Text, "lines": escape.Lines}).ParseFS(assets, "assets/*.html"))
})

// New makes a dashboard. [Dashboard.Run] takes its samples.
func New(s Source) *Dashboard {
	d := &Dashboard{
		source: s, mux: http.NewServeMux(),
		streams: make(chan struct{}, maxStreams), ended: make(chan struct{}), check: make(chan struct{}, 1),
		reads: make(chan struct{}, maxReads),
		jobs:  jobList{starts: make(chan *job, 1), guess: make(chan struct{}, 1)},
	}
	files, err := fs.Sub(assets, "assets")
	if err != nil {
		panic(err) // the name is a constant
	}
	d.mux.HandleFunc("GET "+Path+"{$}", d.overview)
	d.mux.HandleFunc("GET "+Path+"events", d.events)
	d.mux.HandleFunc("GET "+Path+"deadletters", d.deadLetters)
	d.mux.HandleFunc("GET "+Path+"deadletter", d.deadLetter)
	d.mux.HandleFunc("GET "+Path+"message", d.message)
	d.mux.HandleFunc("GET "+Path+"entity", d.entity)
	d.mux.HandleFunc("GET "+Path+"deadlines", d.outstanding)
	d.mux.HandleFunc("GET "+Path+"preview", d.preview)
	d.mux.HandleFunc("GET "+Path+"action", d.action)
	d.mux.HandleFunc("POST "+Path+"act", d.act)
	d.mux.HandleFunc("POST "+Path+"stop", d.stop)
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
	h.Set("Referrer-Policy", "same-origin") // with none at all, a form of the dashboard has no origin
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	d.mux.ServeHTTP(w, r)
}

// query returns the search of a request, cut to a length that costs little.
func query(r *http.Request) string {
	return bounded(strings.TrimSpace(r.URL.Query().Get("q")), maxQuery)
}

// parameter returns a parameter of a request, cut in the same way.
func parameter(r *http.Request, name string) string {
	return bounded(r.URL.Query().Get(name), maxParameter)
}

func bounded(s string, most int) string {
	if len(s) > most {
		s = s[:most]
	}
	return strings.ToValidUTF8(s, "")
}

func (d *Dashboard) overview(w http.ResponseWriter, r *http.Request) {
	d.wantChecks()
	v, err := d.view(query(r))
	if err == nil {
		v.Events = Path + "events?" + values("q", v.Query)
		v.Settings, err = settings(d.source.Settings())
	}
	if err != nil {
		cannotShow(w, err)
		return
	}
	show(w, http.StatusOK, "overview.html", v)
}

// show renders a page as a whole before it writes any of it.
func show(w http.ResponseWriter, status int, name string, v any) {
	var page bytes.Buffer
	if err := pages().ExecuteTemplate(&page, name, v); err != nil {
		cannotShow(w, err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = page.WriteTo(w) // an error is the caller's loss only
}

func cannotShow(w http.ResponseWriter, err error) {
	http.Error(w, escape.Lines("the dashboard cannot be shown: "+err.Error()), http.StatusInternalServerError)
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

// A Demo is what `overdue demo --web` shows above everything else: two queues side by side.
type Demo struct {
	Text   string // what happens at the moment
	Queues []DemoQueue
}

// A DemoQueue is one of the two.
type DemoQueue struct {
	Name, Title, Verdict         string
	Sent, Waiting, Dead, Overdue int // Overdue of the waiting ones
}

// ShowDemo makes the overview show a demo.
func (d *Dashboard) ShowDemo(read func() *Demo) { d.demo.Store(&read) }
