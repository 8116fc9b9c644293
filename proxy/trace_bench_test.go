// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"overdue/internal/amqp"
	"overdue/internal/amqp/relay"
	"overdue/internal/broker"
	"overdue/internal/servicebus/link"
	"overdue/internal/testing/brokertest"
	"overdue/internal/traces"
	"overdue/scheduler"
)

// The cost of traces for a monitored delivery, the export included.
func BenchmarkTracedDelivery(b *testing.B) {
	const context0 = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0"
	for _, tt := range []struct{ name, flags string }{{"off", "1"}, {"unsampled", "0"}, {"sampled", "1"}} {
		b.Run(tt.name, func(b *testing.B) {
			encoded, err := (&goamqp.Message{
				Header: &goamqp.MessageHeader{TTL: time.Hour}, Properties: &goamqp.MessageProperties{}, Data: [][]byte{make([]byte, 256)},
				ApplicationProperties: map[string]any{"tenant": "one", "Diagnostic-Id": context0 + tt.flags},
			}).MarshalBinary()
			if err != nil {
				b.Fatal(err)
			}
			receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
			b.Cleanup(receiver.Close)
			var tracer *traces.Tracer
			if tt.name != "off" {
				b.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.URL)
				if tracer, err = traces.New(traces.Options{MonitorQueue: func(string) string { return monitorQueue }}); err != nil {
					b.Fatal(err)
				}
				ctx, cancel := context.WithCancel(context.Background())
				done := make(chan error, 1)
				go func() { done <- tracer.Run(ctx) }()
				b.Cleanup(func() {
					cancel()
					if err := <-done; err != nil {
						b.Error(err)
					}
				})
			}
			ns := brokertest.NewTCP(b, func(c *broker.Config) { c.AutoCreate = true })
			links := link.New(link.Config{Host: "overdue.test", Plain: true, Dial: ns.Dial, Tokens: link.SAS("RootManageSharedAccessKey", "c2VjcmV0")})
			b.Cleanup(func() { _ = links.Close() })
			s, err := scheduler.New(scheduler.Config{
				MonitorQueue: monitorQueue, Links: links, Companions: "each",
			})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = s.Close(context.Background()) })
			if err := s.MeasureClock(b.Context()); err != nil {
				b.Fatal(err)
			}
			p, err := New(Config{
				Links: links, Scheduler: s, AMQP: relay.Config{Dial: ns.Dial, Hostname: "overdue.test"}, Upstream: Upstream{Dial: ns.Dial}, MonitorQueue: monitorQueue,
				Settings: func(string) Settings { return Settings{Monitored: true, StampTTL: true, Findable: true} }, Traces: tracer,
			})
			if err != nil {
				b.Fatal(err)
			}
			l := p.watch(linkOf(senderTo("orders")))
			answered := make(chan *amqp.Error, 1)
			b.ReportAllocs()
			for b.Loop() {
				held, refused := l.Deliver(&relay.Delivery{Payload: encoded})
				if refused != nil || held == nil {
					b.Fatalf("Deliver = %v, %v", held, refused)
				}
				held.Settled(amqp.Accepted{}, relay.AnswerFunc(func(e *amqp.Error) { answered <- e }))
				if e := <-answered; e != nil {
					b.Fatal(e)
				}
			}
		})
	}
}
