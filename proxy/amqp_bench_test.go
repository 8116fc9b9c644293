// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"overdue/internal/amqp"
	"overdue/internal/amqp/relay"
	"overdue/internal/broker"
	"overdue/internal/testing/brokertest"
	"overdue/scheduler"
)

// BenchmarkServeAMQP sends messages of 256 bytes over loopback, 16 senders at once and each on a
// connection of its own. They go straight to the broker, through the endpoint, and through it with
// a companion for each.
func BenchmarkServeAMQP(b *testing.B) {
	const senders = 16
	for _, name := range []string{"direct", "unmonitored", "monitored"} {
		b.Run(name, func(b *testing.B) {
			ns := brokertest.NewTCP(b, func(c *broker.Config) { c.AutoCreate = true })
			upstream := ns.Links(b)
			s, err := scheduler.New(scheduler.Config{MonitorQueue: monitorQueue, Links: upstream})
			if err != nil {
				b.Fatal(err)
			}
			if err := s.MeasureClock(b.Context()); err != nil {
				b.Fatal(err)
			}
			p, err := New(Config{
				Links: upstream, Scheduler: s, AMQP: relay.Config{Dial: ns.Dial}, Upstream: Upstream{Dial: ns.Dial},
				Excluded: func(string) bool { return name != "monitored" },
			})
			if err != nil {
				b.Fatal(err)
			}
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			go func() { _ = p.Serve(ln) }() // that it serves, the sends show
			b.Cleanup(func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				if err := p.Close(ctx); err != nil {
					b.Error(err)
				}
			})
			dial := func(ctx context.Context) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", ln.Addr().String())
			}
			if name == "direct" {
				dial = ns.Dial
			}
			var links [senders]*goamqp.Sender
			for i := range links {
				nc, err := dial(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				conn, err := goamqp.NewConn(b.Context(), nc, &goamqp.ConnOptions{HostName: "overdue.test", SASLType: goamqp.SASLTypeAnonymous()})
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { _ = conn.Close() }) // tells what the peer made of it
				session, err := conn.NewSession(b.Context(), nil)
				if err != nil {
					b.Fatal(err)
				}
				if links[i], err = session.NewSender(b.Context(), "orders", nil); err != nil {
					b.Fatal(err)
				}
			}
			id := "m1"
			m := &goamqp.Message{
				Properties:            &goamqp.MessageProperties{MessageID: id},
				ApplicationProperties: map[string]any{"overdue-within": "1h"},
				Data:                  [][]byte{make([]byte, 256)},
			}
			var next atomic.Int32
			b.ReportAllocs()
			b.SetParallelism(senders) // more goroutines than links share one
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				link := links[int(next.Add(1))%senders]
				for pb.Next() {
					if err := link.Send(context.Background(), m, nil); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// The work of the AMQP endpoint on a message of 256 bytes, in addition to relaying it: reading the
// necessary fields, working out the promise, stamping the TTL.
func BenchmarkCompleteADelivery(b *testing.B) {
	id := "m1"
	encoded, err := (&goamqp.Message{
		Properties:            &goamqp.MessageProperties{MessageID: id, Subject: &id},
		ApplicationProperties: map[string]any{"kind": "order", "overdue-within": "30s"},
		Data:                  [][]byte{make([]byte, 256)},
	}).MarshalBinary()
	if err != nil {
		b.Fatal(err)
	}
	batch := &goamqp.Message{}
	for range 100 {
		batch.Data = append(batch.Data, encoded)
	}
	batched, err := batch.MarshalBinary()
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		payload []byte
		format  uint32
	}{{"single", encoded, 0}, {"batch-100", batched, amqp.BatchMessageFormat}} {
		b.Run(c.name, func(b *testing.B) {
			settings := Settings{Monitored: true, StampTTL: true}
			b.ReportAllocs()
			b.SetBytes(int64(len(c.payload)))
			for b.Loop() {
				ms, err := readPayload(c.payload, c.format)
				if err != nil {
					b.Fatal(err)
				}
				promises, err := promiseAll(ms, settings, measured(time.Millisecond))
				if err != nil || len(promises) != len(ms) {
					b.Fatalf("%d promises, %v", len(promises), err)
				}
				if out := completed(c.payload, c.format, ms); len(out) <= len(c.payload) {
					b.Fatal("no TTL was stamped")
				}
			}
		})
	}
}
