// SPDX-License-Identifier: Apache-2.0

package traces

import (
	"context"
	"iter"
	"testing"
	"time"

	"overdue/internal/testing/otlptest"
	"overdue/internal/traceparent"
)

// tracer makes a Tracer of the variables, which end in pairs of names and values, and runs it until
// stop.
func tracer(t *testing.T, r *otlptest.Receiver, variables ...string) (tr *Tracer, stop func()) {
	t.Helper()
	setenv(t, append([]string{"OTEL_EXPORTER_OTLP_ENDPOINT", r.URL, "OTEL_EXPORTER_OTLP_PROTOCOL", r.Protocol}, variables...)...)
	tr, err := New(Options{
		Namespace:    "contoso.servicebus.windows.net",
		MonitorQueue: monitorQueueOf,
		Version:      "v1",
	})
	if err != nil {
		t.Fatal(err)
	}
	return tr, run(t, tr)
}

// setenv sets variables, which are pairs of names and values.
func setenv(t testing.TB, variables ...string) {
	t.Helper()
	for i := 0; i < len(variables); i += 2 {
		t.Setenv(variables[i], variables[i+1])
	}
}

// run runs a Tracer until stop.
func run(t *testing.T, tr *Tracer) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- tr.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func monitorQueueOf(string) string { return "monitor" }

// propertiesOf are the properties of messages.
func propertiesOf(messages ...map[string]any) iter.Seq[func(string) any] {
	return func(yield func(func(string) any) bool) {
		for _, m := range messages {
			if !yield(func(name string) any { return m[name] }) {
				return
			}
		}
	}
}

const appTrace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func sent(tr *Tracer, messages ...map[string]any) *Send {
	s := tr.Begin(Start{Entity: "orders", Endpoint: "amqp", Messages: len(messages), Began: time.Now()}, propertiesOf(messages...))
	s.Promised("order-1", time.Now().Add(time.Minute), "ttl", false)
	s.Schedules(1)
	s.Scheduled(Failure{})
	s.Settled(time.Now(), Failure{})
	s.End(Failure{})
	return s
}

func known(t *testing.T) traceparent.Context {
	t.Helper()
	c, ok := traceparent.Parse(appTrace)
	if !ok {
		t.Fatal("the trace of the test cannot be read")
	}
	return c
}
