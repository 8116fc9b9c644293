// SPDX-License-Identifier: Apache-2.0

package traces

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"overdue/internal/testing/otlptest"
)

// An export is an exporter of the SDK whose receiver is a function.
type export func(ctx context.Context) error

func (e export) ExportSpans(ctx context.Context, _ []sdk.ReadOnlySpan) error { return e(ctx) }
func (e export) Shutdown(context.Context) error                              { return nil }

// bubbleTracer makes a Tracer in a bubble, and runs it until stop.
func bubbleTracer(t *testing.T, e export) (tr *Tracer, logs *observer.ObservedLogs, stop func()) {
	core, logs := observer.New(zap.DebugLevel)
	r := &receiver{url: &url.URL{Scheme: "http", Host: "receiver.test:4318", Path: "/v1/traces"}}
	tr, err := newTracer(r, e, Options{MonitorQueue: monitorQueueOf, Log: zap.New(core)})
	if err != nil {
		t.Fatal(err)
	}
	return tr, logs, run(t, tr)
}

func TestAReceiverThatIsAwayIsLoggedOnceAndCostsSpansOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		away.Store(true)
		tr, logs, stop := bubbleTracer(t, func(context.Context) error {
			if !away.Load() {
				return nil
			}
			time.Sleep(30 * time.Second) // as the exporters do with their retries
			return errors.New("connection refused")
		})
		for range 9 * 60 * 100 { // nine minutes
			sent(tr, nil)
			time.Sleep(10 * time.Millisecond)
		}
		if n := logs.FilterMessage("traces not exported").Len(); n != 1 {
			t.Errorf("%d log lines in nine minutes, want one", n)
		}
		if n := tr.delivery.waiting.Load(); n > sdk.DefaultMaxQueueSize {
			t.Errorf("%d spans wait", n)
		}
		away.Store(false)
		time.Sleep(time.Minute)
		sent(tr, nil)
		time.Sleep(time.Minute)
		back := logs.FilterMessage("traces exported again").All()
		if len(back) != 1 || back[0].ContextMap()["spans_lost"].(int64) == 0 {
			t.Errorf("log %v, want that the receiver is back, and what was lost", back)
		}
		stop()
		sum := 0.0
		for _, result := range []string{resultExported, resultFailed, resultDropped} {
			n := testutil.ToFloat64(tr.delivery.counts.WithLabelValues(result))
			if n == 0 {
				t.Errorf("no span is counted as %s", result)
			}
			sum += n
		}
		if all := 3.0 * (9*60*100 + 1); sum != all {
			t.Errorf("%v spans are counted, want all %v", sum, all)
		}
	})
}

func TestAStopWaitsForAReceiverForAWhileOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, logs, stop := bubbleTracer(t, func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		for range 1000 {
			sent(tr, nil)
		}
		began := time.Now()
		stop()
		if took := time.Since(began); took > stopTimeout {
			t.Errorf("the stop took %v, want at most %v", took, stopTimeout)
		}
		counts := tr.delivery.counts
		if lost := testutil.ToFloat64(counts.WithLabelValues(resultFailed)) + testutil.ToFloat64(counts.WithLabelValues(resultDropped)); lost != 3000 || logs.FilterMessage("traces not exported").Len() != 1 {
			t.Errorf("%v spans are lost and the log is %v, want all 3000, and one line", lost, logs.All())
		}
	})
}

// logged makes a Tracer of the variables, sends once, and returns what is logged.
func logged(t *testing.T, variables ...string) *observer.ObservedLogs {
	t.Helper()
	core, logs := observer.New(zap.DebugLevel)
	setenv(t, variables...)
	tr, err := New(Options{MonitorQueue: monitorQueueOf, Log: zap.New(core)})
	if err != nil {
		t.Fatal(err)
	}
	stop := run(t, tr)
	sent(tr, nil)
	stop()
	return logs
}

func TestAnErrorOfAReceiverNamesNoPath(t *testing.T) {
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no such\x1b tenant", http.StatusBadRequest)
	}))
	t.Cleanup(refuses.Close)
	for name, endpoint := range map[string]string{"away": "http://127.0.0.1:1", "refuses": refuses.URL} {
		logs := logged(t, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", endpoint+"/secret")
		all := logs.FilterMessage("traces not exported").All()
		if len(all) != 1 {
			t.Errorf("%s: log %v, want one error", name, logs.All())
			continue
		}
		about := all[0].ContextMap()
		if text, _ := about["error"].(string); text == "" || strings.Contains(text, "secret") || strings.Contains(text, "\x1b") {
			t.Errorf("%s: error %q, want one without the path, and escaped", name, text)
		}
		if about["receiver"] != endpoint {
			t.Errorf("%s: receiver %v, want %s", name, about["receiver"], endpoint)
		}
	}
}

// A receiver must not direct this process to other hosts.
func TestARedirectOfAReceiverIsNotFollowed(t *testing.T) {
	elsewhere := otlptest.New(t, otlptest.HTTP)
	redirects := httptest.NewServer(http.RedirectHandler(elsewhere.URL+"/v1/traces", http.StatusTemporaryRedirect))
	t.Cleanup(redirects.Close)
	logs := logged(t, "OTEL_EXPORTER_OTLP_ENDPOINT", redirects.URL)
	if n := len(elsewhere.All()); n != 0 {
		t.Errorf("%d spans went where the receiver redirects, want none", n)
	}
	if all := logs.FilterMessage("traces not exported").All(); len(all) != 1 || !strings.Contains(all[0].ContextMap()["error"].(string), "redirects are never followed") {
		t.Errorf("log %v, want that the redirect was refused", logs.All())
	}
}

func TestTracesThatAreOffCostNothing(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "")
	tr, err := New(Options{})
	if tr != nil || err != nil {
		t.Fatalf("New = %v, %v, want none", tr, err)
	}
	if n := testing.AllocsPerRun(100, func() {
		s := tr.Begin(Start{}, nil)
		s.Promised("", time.Time{}, "", false)
		s.Schedules(1)
		s.Scheduled(Failure{})
		s.Settled(time.Time{}, Failure{})
		s.End(Failure{})
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

func BenchmarkSend(b *testing.B) {
	for name, flags := range map[string]string{"sampled": "01", "unsampled": "00"} {
		b.Run(name, func(b *testing.B) {
			r := &receiver{url: &url.URL{Scheme: "http", Host: "receiver.test"}}
			tr, err := newTracer(r, export(func(context.Context) error { return nil }), Options{MonitorQueue: monitorQueueOf})
			if err != nil {
				b.Fatal(err)
			}
			message := map[string]any{"Diagnostic-Id": strings.TrimSuffix(appTrace, "01") + flags}
			b.ReportAllocs()
			for b.Loop() {
				sent(tr, message)
			}
		})
	}
}
