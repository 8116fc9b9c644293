// SPDX-License-Identifier: Apache-2.0

// Package adminport is what operators, probes and scrapers ask a running process: health,
// readiness, metrics, the settings in force, the latest notifications, the log level, drain and
// quit.
package adminport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"overdue/internal/config"
	"overdue/internal/escape"
	"overdue/internal/history"
	"overdue/internal/lifecycle"
)

// checkTimeout bounds each check.
const checkTimeout = 3 * time.Second

var errLate = fmt.Errorf("no answer within %v", checkTimeout)

// A Check answers whether something is as it should be; the error is a sentence.
type Check struct {
	Name string
	OK   func(context.Context) error
}

// A Remark is what a check reports although nothing is wrong.
type Remark string

// Error makes it pass through where errors do.
func (r Remark) Error() string { return string(r) }

// An Outcome is what a check has answered.
type Outcome struct {
	Name   string
	Err    error  // nil: nothing is wrong
	Remark string // "" where there is none
}

// Ask makes the checks, all at once: each has a time of its own, so that one without an answer
// takes nothing from the others.
func Ask(ctx context.Context, checks []Check) []Outcome {
	ctx, cancel := context.WithTimeoutCause(ctx, checkTimeout, errLate)
	defer cancel()
	all := make([]Outcome, len(checks))
	answered := make([]chan struct{}, len(checks))
	errs := make([]error, len(checks))
	for i, c := range checks {
		answered[i] = make(chan struct{})
		go func() { // until it answers, which ctx may hurry
			errs[i] = c.OK(ctx)
			close(answered[i])
		}()
	}
	for i, c := range checks {
		select {
		case <-answered[i]:
		case <-ctx.Done():
		}
		all[i] = Outcome{Name: c.Name, Err: context.Cause(ctx)}
		select {
		case <-answered[i]:
			if late := errors.Is(errs[i], context.DeadlineExceeded) && ctx.Err() != nil; !late {
				all[i].Err = errs[i]
			}
		default:
		}
		if said := Remark(""); errors.As(all[i].Err, &said) {
			all[i].Err, all[i].Remark = nil, string(said)
		}
	}
	return all
}

// Port is the operator's view of a running process.
type Port struct {
	Life      *lifecycle.Lifecycle
	Level     zap.AtomicLevel
	Metrics   prometheus.Gatherer
	Config    *config.Config                // as of the start
	Current   atomic.Pointer[config.Config] // in force; nil = cfg
	Restart   atomic.Pointer[[]string]      // settings that differ from those in force until a restart; nil = none
	Ready     []Check                       // ask for a state; they do not go out
	Outbound  []Check                       // go out and ask
	Sinks     atomic.Pointer[[]Check]       // so do these, of the sinks of alerts; nil = none
	History   *history.History              // that of a broker alone stays empty; not nil
	Fleet     http.HandlerFunc              // the processes that this one knows
	Dashboard http.Handler                  // nil = none
	Quit      chan struct{}                 // gets a value when somebody wants the process to end
}

// Probes serves what other machines may ask, too: nothing that changes anything, nor goes out.
func (a *Port) Probes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /startupz", a.startupz)
	mux.HandleFunc("GET /readyz", a.readyz)
	mux.Handle("GET /metrics", MetricsHandler(a.Metrics))
	return mux
}

// MetricsHandler answers with metrics.
func MetricsHandler(g prometheus.Gatherer) http.Handler {
	return promhttp.HandlerFor(g, promhttp.HandlerOpts{MaxRequestsInFlight: 8, EnableOpenMetrics: true})
}

// Handler serves probes and metrics to everybody, the rest to this machine only.
func (a *Port) Handler() http.Handler {
	mux := a.Probes()
	mux.Handle("GET /{$}", local(func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, strings.TrimSpace(index)) }))
	if a.Dashboard != nil {
		mux.Handle("GET /dashboard/", local(a.Dashboard.ServeHTTP))
		mux.Handle("POST /dashboard/", localForm(a.Dashboard.ServeHTTP))
	}
	mux.HandleFunc("GET /healthz/outbound", a.healthzOutbound)
	mux.Handle("POST /drain", local(a.drain))
	mux.Handle("POST /quitquitquit", local(a.quitquitquit))
	for _, path := range []string{history.NotificationsPath, history.MissedPath, history.SlackPath, history.MinutesPath, history.UnknownPath} {
		mux.Handle("GET "+path, local(a.History.ServeHTTP))
	}
	mux.Handle("GET "+history.FleetPath, local(a.Fleet))
	mux.Handle("GET /loglevel", local(a.showLevel))
	mux.Handle("PUT /loglevel", local(a.setLevel))
	mux.Handle("GET /configz", local(a.configz))
	mux.Handle("GET /debug/pprof/", local(pprof.Index))
	mux.Handle("GET /debug/pprof/cmdline", local(pprof.Cmdline))
	mux.Handle("GET /debug/pprof/profile", local(pprof.Profile))
	mux.Handle("GET /debug/pprof/symbol", local(pprof.Symbol))
	mux.Handle("GET /debug/pprof/trace", local(pprof.Trace))
	return mux
}

// adminHeader has to be 1 in a request that changes something. A process of this machine that is
// led here by the redirect of another host does not send it. A web page may not send it without
// asking first, which is not granted.
const adminHeader = "Overdue-Admin"

// local lets only callers on this machine through, and no web page that a browser on this machine
// shows. Such a page could otherwise stop the process, or read its configuration through a name
// that it has pointed at loopback. Any request but a GET needs adminHeader as well.
func local(h http.HandlerFunc) http.Handler {
	guarded := localForm(h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if changes := r.Method != http.MethodGet && r.Method != http.MethodHead; changes && fromHere(r) && r.Header.Get(adminHeader) != "1" {
			answer(w, http.StatusForbidden, fmt.Sprintf("%[1]s %[2]s changes this process and needs the header %[3]s: 1, which neither a redirect nor a form can bring: "+
				"curl -X %[1]s -H '%[3]s: 1' http://%[4]s%[2]s", r.Method, r.URL.Path, adminHeader, r.Host))
			return
		}
		guarded.ServeHTTP(w, r)
	})
}

// fromHere reports whether the caller is on this machine, and asks for it by a loopback name.
func fromHere(r *http.Request) bool {
	caller, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && caller.Addr().Unmap().IsLoopback() && isLoopback(r.Host)
}

// localForm is local without adminHeader, for forms, which cannot bring one. They have to bring the
// token of the dashboard instead.
func localForm(h http.HandlerFunc) http.Handler {
	guarded := http.NewCrossOriginProtection().Handler(h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !fromHere(r) {
			answer(w, http.StatusForbidden, "this endpoint answers only to this machine, under the name localhost or a loopback address")
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, 4<<10)
		guarded.ServeHTTP(w, r)
	})
}

// isLoopback reports whether a Host header names this machine by a loopback name.
func isLoopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// answer writes text, of which a caller sees all. An error to write it is the caller's loss only.
func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = fmt.Fprintln(w, escape.Lines(text))
}

func (a *Port) startupz(w http.ResponseWriter, _ *http.Request) {
	if a.Life.State() == lifecycle.StateStarting {
		answer(w, http.StatusServiceUnavailable, "starting")
		return
	}
	answer(w, http.StatusOK, "started")
}

// readyz is about this process and its namespace. That a sink of alerts is down must not
// take the endpoints out of service, so nothing of the sort is asked here.
func (a *Port) readyz(w http.ResponseWriter, r *http.Request) {
	report(w, r, a.Readiness(r.Context()), "ready")
}

// Readiness asks everything that a process has to be ready for. Probes, metrics and the heartbeat
// read it.
func (a *Port) Readiness(ctx context.Context) []Outcome {
	checks := append([]Check{{"state", a.serving}}, a.Ready...)
	if keys := a.Restart.Load(); keys != nil && len(*keys) > 0 { // the process works with the former ones
		waits := Remark("changed settings wait for a restart: " + strings.Join(*keys, ", "))
		checks = append(checks, Check{"configuration", func(context.Context) error { return waits }})
	}
	return Ask(ctx, checks)
}

// serving is the check of the state.
func (a *Port) serving(context.Context) error {
	s := a.Life.State()
	switch waits := a.Life.WaitsFor(); {
	case s == lifecycle.StateServing:
		return nil
	case waits != "":
		return &Failure{Reason(s), fmt.Errorf("%s; %s", s, waits)}
	}
	return &Failure{Reason(s), errors.New(string(s))}
}

func (a *Port) healthzOutbound(w http.ResponseWriter, r *http.Request) {
	checks := a.Outbound
	if sinks := a.Sinks.Load(); sinks != nil {
		checks = slices.Concat(checks, *sinks)
	}
	report(w, r, Ask(r.Context(), checks), "reachable")
}

// report answers with outcomes. The details come with ?verbose, and always when one fails.
func report(w http.ResponseWriter, r *http.Request, outcomes []Outcome, well string) {
	var text bytes.Buffer
	status := http.StatusOK
	for _, o := range outcomes {
		switch {
		case o.Err != nil:
			status = http.StatusServiceUnavailable
			fmt.Fprintf(&text, "[-] %s: %v%s\n", o.Name, o.Err, reasonNote(o))
		case o.Remark != "":
			fmt.Fprintf(&text, "[+] %s: %s\n", o.Name, o.Remark)
		default:
			fmt.Fprintf(&text, "[+] %s\n", o.Name)
		}
	}
	if _, verbose := r.URL.Query()["verbose"]; !verbose && status == http.StatusOK {
		answer(w, status, well)
		return
	}
	if status != http.StatusOK {
		well = "not " + well
	}
	answer(w, status, text.String()+well)
}

// reasonNote adds the reason that metrics show, where the sentence does not begin with it.
func reasonNote(o Outcome) string {
	stated := (*Failure)(nil)
	if !errors.As(o.Err, &stated) || strings.HasPrefix(stated.Error(), string(stated.Reason)) {
		return ""
	}
	return fmt.Sprintf(" (reason %s)", stated.Reason)
}

// drain does what SIGTERM does, delays included, and answers when the components are stopped. The
// process and its admin port stay, so that the last metrics can be read; quitquitquit or a signal
// ends it.
func (a *Port) drain(w http.ResponseWriter, r *http.Request) {
	// Draining is bounded, by a setting that may be longer than what other answers take. A
	// writer without deadlines, as in a test, needs none lifted.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(max(a.Config.MinSigtermDelay, a.Config.MaxSigtermDelay) + a.Config.ShutdownTimeout + time.Second))
	if err := a.Life.Drain(); err != nil {
		answer(w, http.StatusInternalServerError, err.Error())
		return
	}
	answer(w, http.StatusOK, string(a.Life.State()))
}

func (a *Port) quitquitquit(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusAccepted, "stopping")
	select {
	case a.Quit <- struct{}{}:
	default: // somebody has asked already
	}
}
