// SPDX-License-Identifier: Apache-2.0

// Package web is the dashboard on the admin port: pages that the server renders, and a stream of
// events that keeps them up to date. The figures of the overview come from the metrics of
// the process and from its history, which counts what they count. The pages about messages read the
// namespace, by peeks that disturb nothing. With a token, operators resubmit and purge dead letters
// after a preview; without one, the dashboard only reads.
package web

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"overdue/alert"
	"overdue/internal/broker"
	"overdue/internal/escape"
	"overdue/internal/history"
	"overdue/internal/operator/deadlines"
	"overdue/internal/redisstore"
	"overdue/monitor/mute"
)

// Path is where the admin port serves a [Dashboard].
const Path = "/dashboard/"

const (
	maxQuery     = 200 // bytes of a search
	maxParameter = 400 // bytes of another parameter: a topic and its subscription have 324
	maxMatches   = 50  // missed deadlines on one page
)

// A Source is the process that a dashboard shows.
type Source struct {
	Role, Version string
	Monitor       bool // it has one
	State         func() string
	Metrics       prometheus.Gatherer
	Ready         func() []Check                // as /readyz has them, at once
	Checks        func(context.Context) []Check // the others: may go out, and returns when the context ends
	Settings      func() any                    // in force, without secrets
	Canary        string                        // the queue of the canary, which is not shown; "" without one
	History       *history.History              // nil for a broker alone

	// Fleet reads the reports of all processes that share a Redis; nil without one: then the pages
	// say that they show this process alone.
	Fleet func(context.Context) (redisstore.Fleet, error)
	// Mutes are those in force; nil for a broker alone.
	Mutes func(context.Context) ([]mute.Mute, error)

	Namespace *Namespace

	Broker *LocalBroker // nil = the process has no embedded broker
}

// A LocalBroker is the embedded broker of a process.
type LocalBroker struct {
	*broker.Broker
	URL   string // of its own pages
	Alone bool   // it is all that the process has: there are no deadlines to show
}

// A Namespace is what the pages about messages read.
type Namespace struct {
	Deadlines   *deadlines.Source // its links are for the dashboard alone; the metrics have more names
	DeadLetters func(ctx context.Context, entity, subscription string) (alert.DeadLetters, error)
	// Depths are those of a queue, or of the subscriptions of a topic, by their paths. It is nil where
	// the process has the broker.
	Depths  func(ctx context.Context, entity string) (map[string]Depth, error)
	Actions *Actions // nil = the dashboard only reads
}

// A Check is the answer of one check of the process.
type Check struct {
	Name    string
	Failed  bool
	Message string // why it failed, or a remark
	Follows bool   // it fails because another check does
}

// A Dashboard shows one process.
type Dashboard struct {
	site
	source Source
	mux    *http.ServeMux

	began time.Time

	mu      sync.Mutex
	samples samples
	outside outside

	messages messagePages
	actions  actionPages
	demo     atomic.Pointer[func() *Demo] // nil = this is no demo

	streams streams       // they end with Run
	check   chan struct{} // has a value when somebody waits for new checks
}

// New makes a dashboard. [Dashboard.Run] takes its samples.
func New(s Source) *Dashboard {
	d := &Dashboard{
		source: s, mux: http.NewServeMux(), began: time.Now(),
		streams: streams{make(chan struct{}, maxStreams), make(chan struct{})}, check: make(chan struct{}, 1),
	}
	d.site = site{
		home:    Path,
		base:    Path,
		role:    s.Role,
		version: s.Version,
		nav:     navOf(&s),
	}
	d.messages = messagePages{
		site:      &d.site,
		Namespace: s.Namespace,
		source:    &d.source,
		reads:     make(chan struct{}, maxReads),
		jobs:      jobList{starts: make(chan *job, 1), guess: make(chan struct{}, 1)},
	}
	d.actions = actionPages{&d.messages}
	d.mux.HandleFunc("GET "+Path+"{$}", d.overview)
	d.mux.HandleFunc(Path, func(w http.ResponseWriter, _ *http.Request) {
		d.refuse(w, refusal{http.StatusNotFound, "there is no such page"})
	})
	d.mux.HandleFunc("GET "+Path+"events", d.events)
	d.mux.HandleFunc("GET "+Path+"entity", d.entity)
	d.messages.register(d.mux)
	d.actions.register(d.mux)
	d.serveAssets(d.mux)
	return d
}

// navOf are the pages that make sense for a process.
func navOf(s *Source) []navLink {
	overview := navLink{"overview", "Overview", Path}
	deadLetters := navLink{"deadletters", "Dead letters", Path + "deadletters"}
	messages := navLink{"message", "Message", Path + "message"}
	switch {
	case s.Broker == nil:
		return []navLink{overview, {"deadlines", "Deadlines", Path + "deadlines"}, deadLetters, messages}
	case s.Broker.Alone:
		return []navLink{overview, deadLetters, {"broker", "Messages", s.Broker.URL}}
	}
	return []navLink{overview, {"deadlines", "Deadlines", Path + "deadlines"}, deadLetters, messages, {"broker", "Broker", s.Broker.URL}}
}

// ServeHTTP serves the pages below [Path]. The caller decides who may see them.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	protect(w)
	d.mux.ServeHTTP(w, r)
}

func (d *Dashboard) overview(w http.ResponseWriter, r *http.Request) {
	d.wantChecks()
	o := readOverviewOptions(r)
	v, err := d.view(o)
	if err == nil {
		v.Events = Path + "events?" + o.values("")
		v.Settings, err = settings(d.source.Settings())
	}
	if err != nil {
		cannotShow(w, err)
		return
	}
	show(w, "overview.html", v, nil)
}

// refuse shows why there is nothing else to show.
func (s *site) refuse(w http.ResponseWriter, err error) {
	show(w, "letter.html", &letterView{page: s.page("", "Error"), Back: Path, BackTo: "Overview"}, err)
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
