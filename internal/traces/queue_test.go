// SPDX-License-Identifier: Apache-2.0

package traces

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// play runs a test in a bubble with a Tracer whose receiver is post.
func play(t *testing.T, post func(context.Context, []byte) error, test func(t *testing.T, tr *Tracer, logs *observer.ObservedLogs, stop func())) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.DebugLevel)
		cfg, err := FromEnvironment(func(name string) string {
			return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://receiver.test:4318"}[name]
		})
		if err != nil {
			t.Fatal(err)
		}
		tr, err := New(cfg, Options{MonitorQueue: monitorQueueOf, Log: zap.New(core)})
		if err != nil {
			t.Fatal(err)
		}
		tr.post = post
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- tr.Run(ctx) }()
		test(t, tr, logs, func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	})
}

func TestSpansWaitForABatchOrForTheDelay(t *testing.T) {
	var mu sync.Mutex
	var at []time.Time
	posts := func() []time.Time {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		return at
	}
	play(t, func(context.Context, []byte) error {
		mu.Lock()
		defer mu.Unlock()
		at = append(at, time.Now())
		return nil
	}, func(t *testing.T, tr *Tracer, _ *observer.ObservedLogs, stop func()) {
		began := time.Now()
		sent(tr, nil)
		time.Sleep(defaultDelay - time.Millisecond)
		sent(tr, nil)
		if len(posts()) != 0 {
			t.Errorf("%d posts before the delay is over", len(posts()))
		}
		time.Sleep(time.Hour)
		if len(posts()) != 1 || posts()[0].Sub(began) != defaultDelay {
			t.Fatalf("posts at %v, want one %v after the first span", posts(), defaultDelay)
		}
		for range 2*defaultBatch/3 + 10 { // of three spans each
			sent(tr, nil)
		}
		if len(posts()) != 3 {
			t.Errorf("%d posts, want two more, of full batches", len(posts()))
		}
		sent(tr, nil)
		stop()
		if exported := testutil.ToFloat64(tr.counts.WithLabelValues(resultExported)); exported != 3*(3+2*defaultBatch/3+10) || len(posts()) != 4 {
			t.Errorf("%v spans exported in %d posts, want all, with one more at the stop", exported, len(posts()))
		}
	})
}

func TestAReceiverThatIsAwayIsLoggedOnceAndCostsSpansOnly(t *testing.T) {
	var away atomic.Bool
	away.Store(true)
	play(t, func(context.Context, []byte) error {
		if away.Load() {
			return errors.New("connection refused")
		}
		return nil
	}, func(t *testing.T, tr *Tracer, logs *observer.ObservedLogs, stop func()) {
		count := func() (n int) { return logs.FilterMessage("traces not exported").Len() }
		for range 9 * 60 * 10 { // nine minutes
			sent(tr, nil)
			time.Sleep(100 * time.Millisecond)
		}
		if n := count(); n != 1 {
			t.Errorf("%d log lines in nine minutes, want one", n)
		}
		if n := tr.pending(); n > defaultQueue {
			t.Errorf("%d spans wait", n)
		}
		if dropped := testutil.ToFloat64(tr.counts.WithLabelValues(resultDropped)); dropped == 0 {
			t.Error("no span is counted as dropped")
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
	})
}

func TestAStopWaitsForAReceiverForAWhileOnly(t *testing.T) {
	play(t, func(ctx context.Context, _ []byte) error {
		<-ctx.Done()
		return ctx.Err()
	}, func(t *testing.T, tr *Tracer, _ *observer.ObservedLogs, stop func()) {
		for range 1000 {
			sent(tr, nil)
		}
		began := time.Now()
		stop()
		if took := time.Since(began); took > lastTime {
			t.Errorf("the stop took %v, want at most %v", took, lastTime)
		}
	})
}

func TestAnErrorOfAReceiverThatIsAwayNamesNoPath(t *testing.T) {
	cfg, err := FromEnvironment(func(name string) string {
		return map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1/secret"}[name]
	})
	if err != nil {
		t.Fatal(err)
	}
	tr, err := New(cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.post(t.Context(), nil); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("error %v, want one without the path", err)
	}
	if strings.Contains(tr.Receiver(), "secret") {
		t.Errorf("receiver %s, want it without the path", tr.Receiver())
	}
}

func TestTracesThatAreOffCostNothing(t *testing.T) {
	tr, err := New(Config{}, Options{})
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
	post := func(context.Context, []byte) error { return nil }
	for name, flags := range map[string]string{"sampled": "01", "unsampled": "00"} {
		b.Run(name, func(b *testing.B) {
			tr, err := New(Config{URL: "http://receiver.test", Protocol: protocolHTTP, Delay: time.Second, Queue: defaultQueue, BatchSize: defaultBatch, BatchTime: time.Second}, Options{MonitorQueue: monitorQueueOf})
			if err != nil {
				b.Fatal(err)
			}
			tr.post = post
			message := map[string]any{"Diagnostic-Id": strings.TrimSuffix(appTrace, "01") + flags}
			b.ReportAllocs()
			for b.Loop() {
				sent(tr, message)
				if tr.pending() >= defaultBatch {
					tr.export(b.Context(), time.Second)
				}
			}
		})
	}
}
