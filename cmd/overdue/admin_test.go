// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// testAdmin is the admin port of a process that has started.
func testAdmin(t *testing.T) *admin {
	t.Helper()
	c, err := loadText(t, "", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	a := &admin{
		life:  newLifecycle(zap.NewNop(), time.Minute),
		level: zap.NewAtomicLevelAt(zap.InfoLevel), metrics: newRegistry(), cfg: c,
		quit: make(chan struct{}, 1),
	}
	a.life.serving()
	return a
}

// ask sends a request as a caller on this machine does.
func ask(a *admin, method, target, body string, change ...func(*http.Request)) (int, string) {
	r := httptest.NewRequest(method, "http://localhost:9095"+target, strings.NewReader(body))
	r.RemoteAddr = "127.0.0.1:40000"
	r.Header.Set("Overdue-Admin", "1")
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	a.handler().ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestReadinessFollowsStateAndChecks(t *testing.T) {
	var upstream error
	a := testAdmin(t)
	a.life = newLifecycle(zap.NewNop(), time.Minute)
	a.ready = []check{{"upstream", func(context.Context) error { return upstream }}}

	expect := func(step, target string, wantCode int, wantBody string) {
		t.Helper()
		if code, body := ask(a, http.MethodGet, target, ""); code != wantCode || body != wantBody {
			t.Errorf("%s: GET %s = %d %q, want %d %q", step, target, code, body, wantCode, wantBody)
		}
	}
	expect("starting", "/startupz", 503, "starting\n")
	expect("starting", "/readyz", 503, "[-] state: starting\n[+] upstream\nnot ready\n")
	expect("starting", "/livez", 200, "ok\n")
	a.life.serving()
	expect("serving", "/startupz", 200, "started\n")
	expect("serving", "/readyz", 200, "ready\n")
	expect("serving", "/readyz?verbose", 200, "[+] state\n[+] upstream\nready\n")
	upstream = errors.New("the namespace cannot be reached")
	expect("upstream gone", "/readyz", 503, "[+] state\n[-] upstream: the namespace cannot be reached\nnot ready\n")
	upstream = nil

	hold, held := make(chan struct{}), make(chan struct{})
	a.life.started("room", func(context.Context) error {
		close(held)
		<-hold
		return nil
	})
	done := make(chan error)
	go func() { done <- a.life.drain() }()
	<-held
	expect("draining", "/readyz", 503, "[-] state: draining\n[+] upstream\nnot ready\n")
	close(hold)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	expect("stopped", "/readyz", 503, "[-] state: stopped\n[+] upstream\nnot ready\n")
	expect("stopped", "/livez", 200, "ok\n")
}

func TestASinkThatIsDownIsOutboundAndNotReadiness(t *testing.T) {
	a := testAdmin(t)
	// A port that was free a moment ago refuses connections.
	s := httptest.NewServer(http.NotFoundHandler())
	url := s.URL
	s.Close()
	a.outbound = []check{sinkCheck("alerts[0].webhook", url+"/secret-path")}
	if code, body := ask(a, http.MethodGet, "/readyz", ""); code != 200 {
		t.Errorf("GET /readyz = %d %q, want 200", code, body)
	}
	code, body := ask(a, http.MethodGet, "/healthz/outbound", "")
	if code != 503 || !strings.Contains(body, "[-] alerts[0].webhook: ") || strings.Contains(body, "secret-path") {
		t.Errorf("GET /healthz/outbound = %d %q, want 503 that names the sink and no path", code, body)
	}
}

func TestOtherMethodsAreRefused(t *testing.T) {
	a := testAdmin(t)
	for target, method := range map[string]string{
		"/livez": "POST", "/readyz": "POST", "/startupz": "DELETE", "/healthz/outbound": "PUT", "/metrics": "POST",
		"/drain": "GET", "/quitquitquit": "GET", "/loglevel": "POST", "/configz": "PUT", "/debug/pprof/": "POST",
	} {
		if code, _ := ask(a, method, target, ""); code != http.StatusMethodNotAllowed {
			t.Errorf("%s %s = %d, want 405", method, target, code)
		}
	}
	if code, _ := ask(a, "GET", "/nothing", ""); code != http.StatusNotFound {
		t.Errorf("GET /nothing = %d, want 404", code)
	}
	if got := a.life.current(); got != stateServing {
		t.Errorf("state %s after refused requests, want %s", got, stateServing)
	}
}

func TestOperatorsEndpointsAnswerOnlyThisMachine(t *testing.T) {
	callers := map[string]struct {
		change func(*http.Request)
		want   int
	}{
		"this machine":          {func(*http.Request) {}, 0},
		"this machine, IPv6":    {func(r *http.Request) { r.RemoteAddr, r.Host = "[::1]:40000", "[::1]:9095" }, 0},
		"another machine":       {func(r *http.Request) { r.RemoteAddr = "192.0.2.1:40000" }, 403},
		"a name that rebinds":   {func(r *http.Request) { r.Host = "evil.example:9095" }, 403},
		"a page in the browser": {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403},
		"an older browser":      {func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }, 403},
	}
	endpoints := map[string]string{
		"/drain": "POST", "/quitquitquit": "POST", "/loglevel": "PUT", "/configz": "GET", "/debug/pprof/cmdline": "GET",
	}
	for name, caller := range callers {
		for target, method := range endpoints {
			a := testAdmin(t)
			code, _ := ask(a, method, target, `{"level":"debug"}`, func(r *http.Request) { r.Header.Set("Content-Type", "application/json") }, caller.change)
			// A browser may read nothing that another origin serves, so it may ask with GET.
			refused := caller.want == 403 && (method != "GET" || !strings.Contains(name, "browser"))
			if (code == 403) != refused {
				t.Errorf("%s: %s %s = %d, want refused %v", name, method, target, code, refused)
			}
			if refused && (a.life.current() != stateServing || len(a.quit) > 0 || a.level.Level() != zap.InfoLevel) {
				t.Errorf("%s: %s %s had an effect", name, method, target)
			}
		}
	}
	a := testAdmin(t)
	for target := range map[string]bool{"/livez": true, "/readyz": true, "/metrics": true} {
		if code, _ := ask(a, "GET", target, "", callers["another machine"].change); code != 200 {
			t.Errorf("GET %s from another machine = %d, want 200", target, code)
		}
	}
}

// What a redirect brings along is the method, the body and what the one who was led here says of itself.
func TestWhatChangesSomethingNeedsAHeader(t *testing.T) {
	for value, want := range map[string]bool{"1": true, "": false, "0": false, "true": false} {
		for target, method := range map[string]string{"/drain": "POST", "/quitquitquit": "POST", "/loglevel": "PUT"} {
			a := testAdmin(t)
			code, text := ask(a, method, target, "level=debug", func(r *http.Request) {
				r.Header.Set("Overdue-Admin", value)
				if value == "" {
					r.Header.Del("Overdue-Admin")
				}
			})
			changed := a.life.current() != stateServing || len(a.quit) > 0 || a.level.Level() != zap.InfoLevel
			if changed != want || (code == 403) == want {
				t.Errorf("%s %s with Overdue-Admin: %q = %d, changed something %v; want that %v", method, target, value, code, changed, want)
			}
			cure := fmt.Sprintf("curl -X %s -H 'Overdue-Admin: 1' http://localhost:9095%s", method, target)
			if !want && !strings.Contains(text, cure) {
				t.Errorf("%s %s is refused with %q, want it to say %q", method, target, text, cure)
			}
		}
	}
}

func TestDrainStopsTheRoomsAndKeepsThePort(t *testing.T) {
	a := testAdmin(t)
	stopped := false
	a.life.started("room", func(context.Context) error { stopped = true; return nil })
	for range 2 { // the second has nothing left to do
		if code, body := ask(a, "POST", "/drain", ""); code != 200 || body != "stopped\n" {
			t.Errorf("POST /drain = %d %q, want 200 stopped", code, body)
		}
	}
	if !stopped || len(a.quit) > 0 {
		t.Errorf("room stopped %v, quit asked for %d times; want true and 0", stopped, len(a.quit))
	}
	for range 2 {
		if code, _ := ask(a, "POST", "/quitquitquit", ""); code != 202 {
			t.Errorf("POST /quitquitquit = %d, want 202", code)
		}
	}
	if len(a.quit) != 1 {
		t.Errorf("quit asked for %d times, want once", len(a.quit))
	}
}

func TestLogLevelChangesAtRunTime(t *testing.T) {
	a := testAdmin(t)
	for body, want := range map[string]zapcore.Level{
		"level=debug": zap.DebugLevel, `{"level":"warn"}`: zap.WarnLevel, "error": zap.ErrorLevel, "level=INFO\n": zap.InfoLevel, `{"level": "debug"}`: zap.DebugLevel,
	} {
		for _, kind := range []string{"", "application/json", "application/x-www-form-urlencoded"} { // what curl says by itself
			code, answer := ask(a, "PUT", "/loglevel", body, func(r *http.Request) { r.Header.Set("Content-Type", kind) })
			if code != 200 || a.level.Level() != want || answer != fmt.Sprintf("{\"level\":%q}\n", want.String()) {
				t.Errorf("PUT /loglevel %q (%s) = %d %q and level %s, want 200 and %s", body, kind, code, answer, a.level, want)
			}
		}
	}
	a.level.SetLevel(zap.DebugLevel)
	for _, body := range []string{`{"level":"loud"}`, "", "level=", "fatal", "level=dpanic", "{", strings.Repeat("debug", 2000)} {
		code, answer := ask(a, "PUT", "/loglevel", body)
		if code != 400 || a.level.Level() != zap.DebugLevel || !strings.Contains(answer, "send level=debug, level=info, level=warn or level=error") {
			t.Errorf("PUT /loglevel %.20q = %d %q and level %s, want 400, a sentence and debug still", body, code, answer, a.level)
		}
	}
	if code, answer := ask(a, "GET", "/loglevel", ""); code != 200 || answer != "{\"level\":\"debug\"}\n" {
		t.Errorf("GET /loglevel = %d %q, want debug", code, answer)
	}
}

// Who opens the admin port in a browser sees what there is.
func TestTheAdminPortSaysWhatItHas(t *testing.T) {
	a := testAdmin(t)
	code, text := ask(a, "GET", "/", "")
	if code != 200 {
		t.Fatalf("GET / = %d", code)
	}
	lines := 0
	for line := range strings.Lines(text) {
		method, rest, ok := strings.Cut(line, " /")
		if !ok {
			continue
		}
		path, _, _ := strings.Cut("/"+rest, " ")
		lines++
		if method = strings.TrimSpace(method); method == "POST" {
			method = "OPTIONS" // it is there if another method is refused, and not missing
		}
		if code, _ := ask(a, method, path, ""); code == 404 {
			t.Errorf("GET / names %s %s, which is not there", method, path)
		}
	}
	if lines != 12 {
		t.Errorf("GET / names %d endpoints, want 12:\n%s", lines, text)
	}
	if code, _ := ask(a, "GET", "/nosuch", ""); code != 404 {
		t.Errorf("GET /nosuch = %d, want 404", code)
	}
}

func TestConfigzShowsNoSecret(t *testing.T) {
	a := testAdmin(t)
	var err error
	a.cfg, err = loadText(t, `
namespace: Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=KEYNAME;SharedAccessKey=s3cr3t=
alerts:
  - webhook: {url: "https://user:s3cr3t@hooks.example/s3cr3t?token=s3cr3t", timeout: 3s}
  - pagerduty: {routingKey: s3cr3t}
  - email: {host: mail, from: o@example.com, to: a@example.com, username: u, password: s3cr3t}
  - shoutrrr: {url: "ntfy://s3cr3t@s3cr3t/s3cr3t"}
`, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	code, body := ask(a, "GET", "/configz", "")
	if code != 200 || strings.Contains(body, "s3cr3t") || strings.Contains(body, "KEYNAME") {
		t.Fatalf("GET /configz = %d and shows a secret:\n%s", code, body)
	}
	var got struct {
		Settings map[string]any
		Origin   map[string]string
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	want := []any{"Endpoint=sb://contoso.servicebus.windows.net;(hidden)",
		map[string]any{"url": "https://hooks.example/(hidden)", "urlFile": "", "timeout": "3s", "grouped": false},
		"overdue.yaml:2"}
	webhook := got.Settings["alerts"].([]any)[0].(map[string]any)["webhook"]
	if diff := cmp.Diff(want, []any{got.Settings["namespace"], webhook, got.Origin["namespace"]}); diff != "" {
		t.Errorf("configz (-want +got):\n%s", diff)
	}
}

// The way that companions take shows, and each change of it is one line.
func TestTheWayOfCompanionsShows(t *testing.T) {
	a := testAdmin(t)
	registry := newRegistry()
	a.metrics = registry
	core, logs := observer.New(zap.InfoLevel)
	told := directGauge(registry, zap.New(core))
	for i, step := range []struct {
		err  error
		want string
		logs int
	}{
		{nil, "overdue_companions_direct 1", 0},
		{errors.New("link detached"), "overdue_companions_direct 0", 1},
		{nil, "overdue_companions_direct 1", 2},
	} {
		told(step.err)
		if _, body := ask(a, "GET", "/metrics", ""); !strings.Contains(body, step.want+"\n") {
			t.Errorf("step %d: GET /metrics lacks %s", i, step.want)
		}
		if n := logs.Len(); n != step.logs {
			t.Errorf("step %d: %d lines, want %d", i, n, step.logs)
		}
	}
	if e := logs.All()[0]; e.Level != zap.WarnLevel || e.ContextMap()["error"] != "link detached" {
		t.Errorf("the way that fails is logged as %v %v", e.Level, e.ContextMap())
	}
}

func TestMetricsNameTheBuild(t *testing.T) {
	a := testAdmin(t)
	registry := newRegistry()
	a.metrics = registry
	count, kept, cancelled := companionCounter(registry)
	count(3, nil)
	cancelled(1)
	count(2, errors.New("gone"))
	kept(4)
	_, body := ask(a, "GET", "/metrics", "")
	for _, want := range []string{
		`overdue_build_info{`, `go_goroutines `, `process_start_time_seconds `,
		`overdue_companions_total{result="accepted"} 3`, `overdue_companions_total{result="failed"} 2`, `overdue_companions_total{result="journaled"} 4`,
		`overdue_companions_total{result="cancelled"} 1`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("GET /metrics lacks %s", want)
		}
	}
}
