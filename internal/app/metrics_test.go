// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

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
	a.Outbound = []adminport.Check{SinkCheck("alerts[0].webhook", url+"/secret-path")}
	if code, body := askAdmin(a, http.MethodGet, "/readyz", ""); code != 200 {
		t.Errorf("GET /readyz = %d %q, want 200", code, body)
	}
	code, body := askAdmin(a, http.MethodGet, "/healthz/outbound", "")
	if code != 503 || !strings.Contains(body, "[-] alerts[0].webhook: ") || strings.Contains(body, "secret-path") {
		t.Errorf("GET /healthz/outbound = %d %q, want 503 that names the sink and no path", code, body)
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
