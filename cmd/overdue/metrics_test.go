// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"overdue/internal/adminport"
	"overdue/internal/lifecycle"
)

// startedAdmin is the admin port of a process that has started.
func startedAdmin(t *testing.T) *adminport.Port {
	t.Helper()
	c, err := loadText(t, "", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	a := &adminport.Port{
		Life:  lifecycle.New(zap.NewNop(), time.Minute),
		Level: zap.NewAtomicLevelAt(zap.InfoLevel), Metrics: newRegistry(), Config: c,
		Quit: make(chan struct{}, 1),
	}
	a.Life.Serving()
	return a
}

// askAdmin sends a request as a caller on this machine does.
func askAdmin(a *adminport.Port, method, target, body string, change ...func(*http.Request)) (int, string) {
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

func TestASinkThatIsDownIsOutboundAndNotReadiness(t *testing.T) {
	a := startedAdmin(t)
	// A port that was free a moment ago refuses connections.
	s := httptest.NewServer(http.NotFoundHandler())
	url := s.URL
	s.Close()
	a.Outbound = []adminport.Check{sinkCheck("alerts[0].webhook", url+"/secret-path")}
	if code, body := askAdmin(a, http.MethodGet, "/readyz", ""); code != 200 {
		t.Errorf("GET /readyz = %d %q, want 200", code, body)
	}
	code, body := askAdmin(a, http.MethodGet, "/healthz/outbound", "")
	if code != 503 || !strings.Contains(body, "[-] alerts[0].webhook: ") || strings.Contains(body, "secret-path") {
		t.Errorf("GET /healthz/outbound = %d %q, want 503 that names the sink and no path", code, body)
	}
}

// The way that companions take shows, and each change of it is one line.
func TestTheWayOfCompanionsShows(t *testing.T) {
	a := startedAdmin(t)
	registry := newRegistry()
	a.Metrics = registry
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
		if _, body := askAdmin(a, "GET", "/metrics", ""); !strings.Contains(body, step.want+"\n") {
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
	a := startedAdmin(t)
	registry := newRegistry()
	a.Metrics = registry
	count, kept, cancelled := companionCounter(registry)
	count(3, nil)
	cancelled(1)
	count(2, errors.New("gone"))
	kept(4)
	_, body := askAdmin(a, "GET", "/metrics", "")
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
