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
	"overdue/internal/config"
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
		Level: zap.NewAtomicLevelAt(zap.InfoLevel), Metrics: newRegistry(config.RoleRun, embeddedNamespace), Config: c,
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
	registry := newRegistry(config.RoleRun, embeddedNamespace)
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

// A counter that begins with its first increase shows no increase. So what the configuration names
// is at 0 before anything has happened.
func TestWhatIsConfiguredHasSeriesFromTheStart(t *testing.T) {
	p := startTest(t, `
broker: {queues: [{name: orders}, {name: unwatched}], topics: [{name: events, subscriptions: [{name: audit}]}]}
monitor: {entities: [{queue: orders}, {topic: events}]}
alerts: [{webhook: {url: "http://127.0.0.1:1/hook"}}]
`)
	_, body := askAdmin(p.admin, "GET", "/metrics", "")
	for _, want := range []string{
		`overdue_build_info{goversion="`, `role="run"`,
		`overdue_deadlines_total{entity="orders",verdict="missed"} 0`, `overdue_deadlines_total{entity="orders",verdict="met"} 0`,
		`overdue_deadlines_total{entity="orders",verdict="unknown"} 0`, `overdue_deadlines_total{entity="events",verdict="missed"} 0`,
		`overdue_deadline_lag_seconds_count{entity="orders"} 0`, `overdue_outstanding_deadlines{entity="orders"} 0`,
		`overdue_sends_total{endpoint="amqp",entity="orders",result="monitored"} 0`, `overdue_sends_total{endpoint="rest",entity="events",result="refused"} 0`,
		`overdue_alerts_total{result="ok",sink="webhook"} 0`, `overdue_alerts_total{result="error",sink="webhook"} 0`,
		`overdue_broker_messages{entity="orders",state="active"} 0`, `overdue_broker_incoming_messages_total{entity="events"} 0`,
		`overdue_broker_settled_messages_total{entity="events/Subscriptions/audit",outcome="complete"} 0`,
		`overdue_broker_dead_letters_total{entity="orders",reason="TTLExpiredException"} 0`,
		`overdue_broker_errors_total{condition="amqp:not-found"} 0`, `overdue_broker_links{role="sender"}`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("GET /metrics lacks %s", want)
		}
	}
	if strings.Contains(body, `overdue_deadlines_total{entity="unwatched"`) {
		t.Error("a queue that is not monitored has deadlines")
	}
}

// An increase shows only in what was scraped at 0, and a listed topic says nothing of its
// subscriptions.
func TestTheSeriesOfListedEntitiesAreAtZeroFromTheStart(t *testing.T) {
	t.Parallel()
	p := startTest(t, "broker: {queues: [{name: orders}], topics: [{name: events, subscriptions: [{name: audit}]}]}\nmonitor: {entities: [{queue: orders}, {topic: events}]}\n")
	for _, entity := range []string{"orders", "events", "events/Subscriptions/audit"} {
		want := `overdue_deadlines_total{entity="` + entity + `",verdict="missed"} 0`
		eventually(t, want, func() bool {
			_, page := askAdmin(p.admin, http.MethodGet, "/metrics", "")
			return strings.Contains(page, want)
		})
	}
}
