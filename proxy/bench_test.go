// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"overdue/internal/amqp/relay"
	"overdue/internal/broker"
	"overdue/internal/servicebus/rest"
	"overdue/internal/testing/apptest"
	"overdue/internal/testing/brokertest"
	"overdue/scheduler"
)

// BenchmarkServeHTTP sends through the REST endpoint to the embedded broker over a network in
// memory, many at once. The difference between the two is the price of a companion.
func BenchmarkServeHTTP(b *testing.B) {
	for _, bm := range []struct {
		name   string
		within string
	}{{"unmonitored", ""}, {"monitored", "1h"}} {
		b.Run(bm.name, func(b *testing.B) {
			p := benchProxy(b)
			post := func() int {
				r := httptest.NewRequest(http.MethodPost, "/orders/messages", strings.NewReader("hello"))
				if bm.within != "" {
					r.Header.Set(propWithin, bm.within)
				}
				w := httptest.NewRecorder()
				p.ServeHTTP(w, r)
				return w.Code
			}
			if code := post(); code != http.StatusCreated {
				b.Fatalf("status %d, want 201", code)
			}
			b.ReportAllocs()
			b.SetParallelism(50)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if code := post(); code != http.StatusCreated {
						b.Errorf("status %d, want 201", code)
						return
					}
				}
			})
		})
	}
}

// BenchmarkServe sends through the REST endpoint over TCP, with properties, each client on a
// connection that it keeps. The difference between the two is the price of the spelling.
func BenchmarkServe(b *testing.B) {
	request := []byte(postLine + "Content-Length: 5\r\nBrokerProperties: {\"TimeToLive\":90}\r\norderId: 7\r\ntenantId: t\r\n\r\nhello")
	for _, bm := range []struct {
		name  string
		serve func(*Proxy, *http.Server, net.Listener) error
	}{
		{"as HTTP spells", func(p *Proxy, s *http.Server, ln net.Listener) error {
			s.Handler = p
			return s.Serve(ln)
		}},
		{"as sent", func(p *Proxy, s *http.Server, ln net.Listener) error {
			s.Handler = p
			return rest.Serve(s, ln)
		}},
	} {
		b.Run(bm.name, func(b *testing.B) {
			p := benchProxy(b)
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			server := &http.Server{}
			go func() { _ = bm.serve(p, server, ln) }() // that it serves, the answers show
			b.Cleanup(func() { _ = server.Close() })
			b.ReportAllocs()
			b.SetParallelism(8)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				conn, err := net.Dial("tcp", ln.Addr().String())
				if err != nil {
					b.Error(err)
					return
				}
				defer conn.Close()
				in := bufio.NewReader(conn)
				for pb.Next() {
					if _, err := conn.Write(request); err != nil {
						b.Error(err)
						return
					}
					if status, body, err := apptest.Answered(in); err != nil || status != http.StatusCreated {
						b.Errorf("status %d %s, %v; want 201", status, body, err)
						return
					}
				}
			})
		})
	}
}

// benchProxy is a proxy before an embedded broker that makes queues on demand.
func benchProxy(b *testing.B) *Proxy {
	ns := brokertest.New(b, func(c *broker.Config) { c.AutoCreate = true })
	links := ns.Links(b)
	s, err := scheduler.New(scheduler.Config{MonitorQueue: monitorQueue, Links: links})
	if err != nil {
		b.Fatal(err)
	}
	if err := s.MeasureClock(b.Context()); err != nil {
		b.Fatal(err)
	}
	p, err := New(Config{Links: links, Scheduler: s, AMQP: relay.Config{Dial: ns.Dial}, Upstream: Upstream{Dial: ns.Dial}})
	if err != nil {
		b.Fatal(err)
	}
	return p
}
