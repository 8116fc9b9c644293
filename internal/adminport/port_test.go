// SPDX-License-Identifier: Apache-2.0

package adminport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"overdue/internal/config"
	"overdue/internal/history"
	"overdue/internal/lifecycle"
)

// testAdmin is the admin port of a process that has started.
func testAdmin(t *testing.T) *Port {
	t.Helper()
	c, err := config.Load("", func(string) string { return "" }, nil)
	if err != nil {
		t.Fatal(err)
	}
	a := &Port{
		Life:  lifecycle.New(zap.NewNop(), time.Minute),
		Level: zap.NewAtomicLevelAt(zap.InfoLevel), Metrics: prometheus.NewRegistry(), Config: c,
		Quit:      make(chan struct{}, 1),
		History:   history.InMemory(history.Config{}),
		Dashboard: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "a page") }),
		Fleet:     func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "processes") },
	}
	a.Life.Serving()
	return a
}

// ask sends a request as a caller on this machine does.
func ask(a *Port, method, target, body string, change ...func(*http.Request)) (int, string) {
	r := httptest.NewRequest(method, "http://localhost:9095"+target, strings.NewReader(body))
	r.RemoteAddr = "127.0.0.1:40000"
	r.Header.Set("Overdue-Admin", "1")
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	a.Handler().ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestReadinessFollowsStateAndChecks(t *testing.T) {
	var upstream error
	a := testAdmin(t)
	a.Life = lifecycle.New(zap.NewNop(), time.Minute)
	a.Ready = []Check{{"upstream", func(context.Context) error { return upstream }}}

	expect := func(step, target string, wantCode int, wantBody string) {
		t.Helper()
		if code, body := ask(a, http.MethodGet, target, ""); code != wantCode || body != wantBody {
			t.Errorf("%s: GET %s = %d %q, want %d %q", step, target, code, body, wantCode, wantBody)
		}
	}
	expect("starting", "/startupz", 503, "starting\n")
	expect("starting", "/readyz", 503, "[-] state: starting\n[+] upstream\nnot ready\n")
	expect("starting", "/livez", 200, "ok\n")
	a.Life.Serving()
	expect("serving", "/startupz", 200, "started\n")
	expect("serving", "/readyz", 200, "ready\n")
	expect("serving", "/readyz?verbose", 200, "[+] state\n[+] upstream\nready\n")
	upstream = errors.New("the namespace cannot be reached")
	expect("upstream gone", "/readyz", 503, "[+] state\n[-] upstream: the namespace cannot be reached\nnot ready\n")
	upstream = nil

	hold, held := make(chan struct{}), make(chan struct{})
	a.Life.Started("component", func(context.Context) error {
		close(held)
		<-hold
		return nil
	})
	done := make(chan error)
	go func() { done <- a.Life.Drain() }()
	<-held
	expect("draining", "/readyz", 503, "[-] state: draining\n[+] upstream\nnot ready\n")
	close(hold)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	expect("stopped", "/readyz", 503, "[-] state: stopped\n[+] upstream\nnot ready\n")
	expect("stopped", "/livez", 200, "ok\n")
}

// One sink that hangs must not fail the others, nor keep the caller.
func TestEachCheckHasATimeOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := make(chan struct{})
		defer close(hangs)
		checks := []Check{
			{"deaf", func(context.Context) error { <-hangs; return nil }},
			{"late", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }},
			{"slow", func(context.Context) error { time.Sleep(2 * time.Second); return nil }},
			{"slow as well", func(context.Context) error { time.Sleep(2 * time.Second); return Remark("and odd") }},
			{"down", func(context.Context) error { return errors.New("refused") }},
		}
		start := time.Now()
		got := map[string]string{}
		for _, o := range Ask(t.Context(), checks) {
			got[o.Name] = fmt.Sprint(o.Err, ", ", o.Remark)
		}
		want := map[string]string{
			"deaf": "no answer within 3s, ", "late": "no answer within 3s, ", "slow": "<nil>, ", "slow as well": "<nil>, and odd", "down": "refused, ",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("outcomes (-want +got):\n%s", diff)
		}
		if took := time.Since(start); took != checkTimeout {
			t.Errorf("it took %v, want %v", took, checkTimeout)
		}
	})
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
	if got := a.Life.State(); got != lifecycle.StateServing {
		t.Errorf("state %s after refused requests, want %s", got, lifecycle.StateServing)
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
			if refused && (a.Life.State() != lifecycle.StateServing || len(a.Quit) > 0 || a.Level.Level() != zap.InfoLevel) {
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

// A redirect brings along the method, the body and the headers by which the redirected client
// describes itself.
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
			changed := a.Life.State() != lifecycle.StateServing || len(a.Quit) > 0 || a.Level.Level() != zap.InfoLevel
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

func TestDrainStopsTheComponentsAndKeepsThePort(t *testing.T) {
	a := testAdmin(t)
	stopped := false
	a.Life.Started("component", func(context.Context) error { stopped = true; return nil })
	for range 2 { // the second has nothing left to do
		if code, body := ask(a, "POST", "/drain", ""); code != 200 || body != "stopped\n" {
			t.Errorf("POST /drain = %d %q, want 200 stopped", code, body)
		}
	}
	if !stopped || len(a.Quit) > 0 {
		t.Errorf("component stopped %v, quit asked for %d times; want true and 0", stopped, len(a.Quit))
	}
	for range 2 {
		if code, _ := ask(a, "POST", "/quitquitquit", ""); code != 202 {
			t.Errorf("POST /quitquitquit = %d, want 202", code)
		}
	}
	if len(a.Quit) != 1 {
		t.Errorf("quit asked for %d times, want once", len(a.Quit))
	}
}

func TestLogLevelChangesAtRunTime(t *testing.T) {
	a := testAdmin(t)
	for body, want := range map[string]zapcore.Level{
		"level=debug": zap.DebugLevel, `{"level":"warn"}`: zap.WarnLevel, "error": zap.ErrorLevel, "level=INFO\n": zap.InfoLevel, `{"level": "debug"}`: zap.DebugLevel,
	} {
		for _, kind := range []string{"", "application/json", "application/x-www-form-urlencoded"} { // what curl says by itself
			code, answer := ask(a, "PUT", "/loglevel", body, func(r *http.Request) { r.Header.Set("Content-Type", kind) })
			if code != 200 || a.Level.Level() != want || answer != fmt.Sprintf("{\"level\":%q}\n", want.String()) {
				t.Errorf("PUT /loglevel %q (%s) = %d %q and level %s, want 200 and %s", body, kind, code, answer, a.Level, want)
			}
		}
	}
	a.Level.SetLevel(zap.DebugLevel)
	for _, body := range []string{`{"level":"loud"}`, "", "level=", "fatal", "level=dpanic", "{", strings.Repeat("debug", 2000)} {
		code, answer := ask(a, "PUT", "/loglevel", body)
		if code != 400 || a.Level.Level() != zap.DebugLevel || !strings.Contains(answer, "send level=debug, level=info, level=warn or level=error") {
			t.Errorf("PUT /loglevel %.20q = %d %q and level %s, want 400, a sentence and debug still", body, code, answer, a.Level)
		}
	}
	if code, answer := ask(a, "GET", "/loglevel", ""); code != 200 || answer != "{\"level\":\"debug\"}\n" {
		t.Errorf("GET /loglevel = %d %q, want debug", code, answer)
	}
}

func TestTheDashboardIsForThisMachineOnly(t *testing.T) {
	a := testAdmin(t)
	if code, body := ask(a, "GET", "/dashboard/", ""); code != 200 || body != "a page\n" {
		t.Errorf("GET /dashboard/ = %d %q, want the page", code, body)
	}
	for name, change := range map[string]func(*http.Request){
		"another machine":     func(r *http.Request) { r.RemoteAddr = "192.0.2.1:40000" },
		"a name that rebinds": func(r *http.Request) { r.Host = "evil.example:9095" },
	} {
		if code, _ := ask(a, "GET", "/dashboard/events", "", change); code != 403 {
			t.Errorf("%s: GET /dashboard/events = %d, want 403", name, code)
		}
	}
	w := httptest.NewRecorder()
	a.Probes().ServeHTTP(w, httptest.NewRequest("GET", "/dashboard/", nil))
	if w.Code != 404 {
		t.Errorf("GET /dashboard/ at listen.probes = %d, want 404", w.Code)
	}
}

// A form cannot bring the header of other changes: the dashboard demands a token instead.
func TestFormsOfTheDashboardAreForItsOwnPagesOnly(t *testing.T) {
	a := testAdmin(t)
	for name, c := range map[string]struct {
		change func(*http.Request)
		want   int
	}{
		"its own page":            {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-origin") }, 200},
		"its own page, no header": {func(r *http.Request) { r.Header.Set("Origin", "http://localhost:9095") }, 200},
		"no browser":              {func(*http.Request) {}, 200},
		"another site":            {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403},
		"another port":            {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") }, 403},
		"another origin":          {func(r *http.Request) { r.Header.Set("Origin", "http://localhost:9096") }, 403},
		"no origin":               {func(r *http.Request) { r.Header.Set("Origin", "null") }, 403},
		"another machine":         {func(r *http.Request) { r.RemoteAddr = "192.0.2.1:40000" }, 403},
		"a name that rebinds":     {func(r *http.Request) { r.Host = "evil.example:9095" }, 403},
	} {
		code, _ := ask(a, "POST", "/dashboard/act", "id=1", func(r *http.Request) { r.Header.Del("Overdue-Admin") }, c.change)
		if code != c.want {
			t.Errorf("%s: POST /dashboard/act = %d, want %d", name, code, c.want)
		}
	}
}

// The root page of the admin port lists its pages, for a person with a browser.
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
	if lines != 18 {
		t.Errorf("GET / names %d endpoints, want 18:\n%s", lines, text)
	}
	if code, _ := ask(a, "GET", "/nosuch", ""); code != 404 {
		t.Errorf("GET /nosuch = %d, want 404", code)
	}
}

func TestConfigzShowsNoSecret(t *testing.T) {
	a := testAdmin(t)
	t.Chdir(t.TempDir())
	if err := os.WriteFile("overdue.yaml", []byte(`
namespace: Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=KEYNAME;SharedAccessKey=s3cr3t=
alerts:
  - webhook: {url: "https://user:s3cr3t@hooks.example/s3cr3t?token=s3cr3t", timeout: 3s}
  - pagerduty: {routingKey: s3cr3t}
  - email: {host: mail, from: o@example.com, to: a@example.com, username: u, password: s3cr3t}
  - shoutrrr: {url: "ntfy://s3cr3t@s3cr3t/s3cr3t"}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if a.Config, err = config.Load("overdue.yaml", func(string) string { return "" }, nil); err != nil {
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
	want := []any{"Endpoint=sb://contoso.servicebus.windows.net;(hidden)", "https://hooks.example/(hidden)", "overdue.yaml:2"}
	webhook := got.Settings["alerts"].([]any)[0].(map[string]any)["webhook"].(map[string]any)
	if diff := cmp.Diff(want, []any{got.Settings["namespace"], webhook["url"], got.Origin["namespace"]}); diff != "" {
		t.Errorf("configz (-want +got):\n%s", diff)
	}
}
