// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"overdue/alert"
	"overdue/internal/history"
	"overdue/internal/operations"
	"overdue/internal/operator/deadlines"
)

// A scene is a dashboard of a process whose metrics the test counts up.
type scene struct {
	*Dashboard
	deadlines   *operations.Deadlines
	lag         *prometheus.HistogramVec
	outstanding *prometheus.GaugeVec
	deliveries  *prometheus.CounterVec
	registry    *prometheus.Registry
	history     *history.History

	ready   []Check
	mu      sync.Mutex
	results []Check
	asked   int
}

func setup(t *testing.T, change ...func(*Source)) *scene {
	t.Helper()
	r := prometheus.NewRegistry()
	s := &scene{
		deadlines: operations.NewDeadlines(r), registry: r, history: history.InMemory(history.Config{Metrics: r}),
		lag:         prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "overdue_deadline_lag_seconds", Buckets: []float64{.01, .1, 1}}, []string{"entity"}),
		outstanding: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "overdue_outstanding_deadlines"}, []string{"entity"}),
		deliveries:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "overdue_alerts_total"}, []string{"sink", "result"}),
		results:     []Check{{Name: "monitor queue"}},
	}
	r.MustRegister(s.lag, s.outstanding, s.deliveries)
	source := Source{
		Role: "run", Version: "v1.2.3", State: func() string { return "serving" }, Metrics: r, Monitor: true, History: s.history,
		Ready:     func() []Check { return s.ready },
		Checks:    s.answer,
		Settings:  func() any { return map[string]any{"monitorQueue": "overdue"} },
		Namespace: &Namespace{Deadlines: &deadlines.Source{Names: func(context.Context) []string { return nil }}},
	}
	for _, c := range change {
		c(&source)
	}
	s.Dashboard = New(source)
	return s
}

// answer makes the checks.
func (s *scene) answer(context.Context) []Check {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	return s.results
}

func (s *scene) get(target string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, target, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// miss records that a message missed its deadline.
func (s *scene) miss(t *testing.T, id string, data alert.EventData) {
	t.Helper()
	err := s.history.Record(taker{}).Alert(t.Context(), alert.Event{ID: id, Type: alert.TypeMissed, Data: data})
	if err != nil {
		t.Fatal(err)
	}
}

// A taker is a sink that takes everything.
type taker struct{ alert.Alerter }

func (taker) Name() string                             { return "log" }
func (taker) Alert(context.Context, alert.Event) error { return nil }

func wantText(t *testing.T, body string, parts ...string) {
	t.Helper()
	body = strings.ReplaceAll(body, "<wbr>", "")
	for _, part := range parts {
		if !strings.Contains(body, part) {
			t.Errorf("the page has no %q:\n%s", part, body)
		}
	}
}

func TestTheOverviewShowsTheFiguresOfTheMetrics(t *testing.T) {
	s := setup(t)
	s.deadlines.Add("orders", "met", 12345)
	s.deadlines.Add("orders", "missed", 3)
	s.deadlines.Add("orders", "unknown", 2)
	s.outstanding.WithLabelValues("orders").Set(7)
	s.lag.WithLabelValues("orders").Observe(0.05)
	s.deliveries.WithLabelValues("webhook", "ok").Add(4)
	s.deliveries.WithLabelValues("webhook", "error").Add(1)
	w := s.get(Path)
	if w.Code != http.StatusOK {
		t.Fatalf("GET %s = %d %s, want 200", Path, w.Code, w.Body)
	}
	wantText(t, w.Body.String(),
		`<th scope="row"><a href="/dashboard/entity?name=orders">orders</a></th><td class="n">≤ 100 ms</td><td class="n">–</td><td class="n bad">3</td>`+
			`<td class="n wide">7</td><td class="n wide warn">2</td><td class="n wide">99.98 %</td><td class="n wide">–</td>`,
		`<th scope="row">webhook</th><td class="wide">takes events</td><td class="n">4</td><td class="n">1</td>`,
		"v1.2.3", "serving", "&#34;monitorQueue&#34;: &#34;overdue&#34;")
}

// A history with gaps does not say that no deadline was missed.
func TestThePagesShowTheGapsOfTheHistory(t *testing.T) {
	s := setup(t, func(s *Source) {
		h, _, err := history.Open(history.Config{Directory: t.TempDir(), Metrics: s.Metrics, Keep: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- h.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
		s.History = h
	})
	s.deadlines.Add("orders", "met", 1)
	for _, target := range []string{Path, Path + "entity?name=orders"} {
		body := s.get(target).Body.String()
		wantText(t, body, "No missed deadline is recorded", ": the history begins then")
		if strings.Contains(body, "No deadline was missed") {
			t.Errorf("%s says that no deadline was missed", target)
		}
	}
}

func TestAnEmptyProcessHasAPage(t *testing.T) {
	wantText(t, setup(t).get(Path).Body.String(), "No queue is known yet", "No deadline was missed", "No sink has got an event", "checks are not finished", "this process alone")
	proxy := setup(t, func(s *Source) { s.Monitor = false })
	body := proxy.get(Path).Body.String()
	for _, bad := range []string{"missed deadlines", "Sinks", `name="q"`, "Outstanding"} {
		if strings.Contains(body, bad) {
			t.Errorf("the page of a process without a monitor has %q", bad)
		}
	}
}

func TestTheCanaryIsNotShown(t *testing.T) {
	s := setup(t, func(s *Source) { s.Canary = "Canary" })
	s.deadlines.Add("canary", "missed", 11)
	if body := s.get(Path).Body.String(); strings.Contains(body, "canary") || strings.Contains(body, ">11<") {
		t.Errorf("the page shows the canary:\n%s", body)
	}
}

func TestSearchFindsPartsOfIDsAndEntities(t *testing.T) {
	s := setup(t)
	deadline := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	s.miss(t, "1", alert.EventData{Entity: "orders", MessageID: "Alpha-1", Deadline: deadline, DeadLetteredTime: deadline.Add(14 * time.Millisecond)})
	s.miss(t, "2", alert.EventData{Entity: "events", Subscription: "audit", MessageID: "beta", SessionID: "s-77", Deadline: deadline})
	s.miss(t, "3", alert.EventData{Entity: "unnamed", SequenceNumber: 17, Deadline: deadline})
	for q, want := range map[string]string{"alpha": "Alpha-1", "ts/AUD": "beta", "s-7": "beta"} {
		body := s.get(Path + "?q=" + q).Body.String()
		other := map[string]string{"beta": "Alpha-1", "Alpha-1": "beta"}[want]
		if wantText(t, body, ">"+want+"<"); strings.Contains(body, ">"+other+"<") {
			t.Errorf("?q=%s shows %s too", q, other)
		}
	}
	wantText(t, s.get(Path+"?q=%2317").Body.String(), ">#17<", "entity=unnamed&amp;id=%2317")
	wantText(t, s.get(Path).Body.String(), "2026-01-02T03:04:05.006Z", "14 ms", "events/Subscriptions/audit")
	wantText(t, s.get(Path+"?q=none").Body.String(), "No missed deadline matches “none”")
}

func TestMarkupInNamesStaysText(t *testing.T) {
	s := setup(t)
	s.results = []Check{{Name: hostile, Failed: true, Message: hostile}}
	s.ask(t.Context())
	s.miss(t, "1", alert.EventData{Entity: hostile, MessageID: hostile, SessionID: hostile, DeadLetterReason: hostile})
	s.deadlines.Add(hostile, "met", 1)
	s.deliveries.WithLabelValues(hostile, "ok").Add(1)
	body := s.get(Path+"?q=%3Cscript%3E%22%3E").Body.String() + s.get(Path).Body.String()
	for _, bad := range []string{"<script>alert", "<img src=x", "\u202e", "\x1b", `value="<`} {
		if strings.Contains(body, bad) {
			t.Errorf("the page has %q unescaped", bad)
		}
	}
	wantText(t, body, "&lt;script&gt;alert(1)")
}

func TestThePolicyAllowsNoInlineScript(t *testing.T) {
	s := setup(t)
	for _, path := range []string{"", "style.css", "dashboard.js", "icon.svg"} {
		w := s.get(Path + path)
		policy := w.Header().Get("Content-Security-Policy")
		if w.Code != http.StatusOK || !strings.HasPrefix(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
			t.Errorf("GET %s%s = %d with policy %q, want 200 and a policy without exceptions", Path, path, w.Code, policy)
		}
	}
	body := s.get(Path).Body.String()
	for _, bad := range []string{"style=", "<style", "onclick", "http://", "https://"} {
		if strings.Contains(body, bad) {
			t.Errorf("the page has %q, which its policy forbids", bad)
		}
	}
	if w := s.get(Path + "overview.html"); w.Code != http.StatusNotFound {
		t.Errorf("GET %soverview.html = %d, want 404: it is a template", Path, w.Code)
	}
}

func TestAStreamSendsWhatHasChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t)
		ctx, cancel := context.WithCancel(t.Context())
		go s.Run(ctx)
		w := &flushed{httptest.NewRecorder(), make(chan struct{}, 100)}
		r := httptest.NewRequest(http.MethodGet, Path+"events", nil)
		done := make(chan struct{})
		go func() { defer close(done); s.ServeHTTP(w, r) }()
		<-w.flushes
		s.mu.Lock()
		s.results = []Check{{Name: "monitor queue", Failed: true, Message: "the monitor does not receive"}}
		s.mu.Unlock()
		time.Sleep(checkInterval + streamInterval)
		synctest.Wait()
		cancel()
		<-done // although nobody has closed the stream
		var last map[string]string
		lines := bufio.NewScanner(w.Body)
		for lines.Scan() {
			data, isData := strings.CutPrefix(lines.Text(), "data: ")
			changed := map[string]string{}
			if !isData {
				continue
			}
			if err := json.Unmarshal([]byte(data), &changed); err != nil {
				t.Fatal(err)
			}
			if _, isHealth := changed["health"]; isHealth {
				last = changed
			}
		}
		if len(last) != 2 || !strings.Contains(last["health"], "failed: the monitor does not receive") || !strings.Contains(last["well"], "1 thing is not well") {
			t.Errorf("the event has %v, want the parts that changed: health, and whether all is well", last)
		}
	})
}

// flushed announces each flush.
type flushed struct {
	*httptest.ResponseRecorder
	flushes chan struct{}
}

func (f *flushed) Flush() { f.ResponseRecorder.Flush(); f.flushes <- struct{}{} }

func TestStreamsAreBoundedAndNotForOtherSites(t *testing.T) {
	s := setup(t)
	if w := s.get(Path+"events", "Sec-Fetch-Site", "cross-site"); w.Code != http.StatusForbidden {
		t.Errorf("a stream for another site = %d, want 403", w.Code)
	}
	for range maxStreams {
		s.streams.open <- struct{}{}
	}
	if w := s.get(Path + "events"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("one stream too many = %d, want 503", w.Code)
	}
}

func TestNobodyIsCheckedForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.Run(ctx)
		time.Sleep(time.Hour)
		synctest.Wait()
		if s.asked != 0 {
			t.Errorf("%d checks while nobody viewed the dashboard, want none", s.asked)
		}
		if got := len(s.samples.latest); got != maxSamples {
			t.Errorf("%d samples after an hour, want %d", got, maxSamples)
		}
		for range 5 {
			s.get(Path)
			synctest.Wait()
		}
		if s.asked != 1 {
			t.Errorf("%d checks for five views at once, want 1", s.asked)
		}
	})
}

func TestTheGraphHasTheMeanLagOfEachSample(t *testing.T) {
	s := setup(t)
	s.lag.WithLabelValues("orders").Observe(99) // before the first sample: when is not known
	s.Sample()
	s.lag.WithLabelValues("orders").Observe(0.010)
	s.lag.WithLabelValues("orders").Observe(0.030)
	s.Sample()
	s.Sample()
	s.lag.WithLabelValues("orders").Observe(0.010)
	s.Sample()
	got := graphOf(s.samples.means("orders"))
	if got.Label != "up to 20 ms" || len(got.Bars) != 2 || got.Bars[0].Height != "32.0" || got.Bars[1] != (bar{"178", "16.0", "16.0"}) {
		t.Errorf("graph = %+v, want bars for 20 ms and, at the right edge, 10 ms", got)
	}
}

func TestManyEntitiesAreCut(t *testing.T) {
	s := setup(t)
	for i := range maxRows + 5 {
		s.deadlines.Add(fmt.Sprintf("queue-%03d", i), "met", 1)
	}
	body := s.get(Path).Body.String()
	if n := strings.Count(body, `<th scope="row"><a href="/dashboard/entity?name=queue-`); n != maxRows {
		t.Errorf("%d rows, want %d", n, maxRows)
	}
	wantText(t, body, "5 more are not shown", "of 105 deadlines")
}

func TestMetricsThatCannotBeReadAreAnError(t *testing.T) {
	s := setup(t, func(s *Source) {
		twice := prometheus.NewGauge(prometheus.GaugeOpts{Name: "twice"})
		broken := prometheus.NewRegistry()
		broken.MustRegister(twice)
		s.Metrics = prometheus.Gatherers{broken, broken}
	})
	s.Sample()
	if w := s.get(Path); w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "cannot be shown: read the metrics") {
		t.Errorf("GET %s = %d %q, want 500 that says why", Path, w.Code, w.Body)
	}
}

// A page that somebody opens in an outage says so at once, before any check that goes out has ended.
func TestTheFirstPageOfAnOutageSaysSo(t *testing.T) {
	s := setup(t)
	s.ready = []Check{{Name: "upstream", Failed: true, Message: "the namespace does not answer"}}
	wantText(t, s.get(Path).Body.String(), "1 thing is not well", "upstream: the namespace does not answer")
}

// Checks that ended long ago do not say that all is well.
func TestOldChecksSayNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t)
		s.ask(t.Context())
		wantText(t, s.get(Path).Body.String(), "All is well")
		time.Sleep(checksLast)
		wantText(t, s.get(Path).Body.String(), "The checks are not finished yet")
	})
}
