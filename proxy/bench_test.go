// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"overdue/internal/broker"
	"overdue/internal/brokertest"
	"overdue/scheduler"
)

// BenchmarkServeHTTP sends through the REST door to the embedded broker over a network in
// memory, many at once. The difference between the two is the price of a companion.
func BenchmarkServeHTTP(b *testing.B) {
	for _, bm := range []struct {
		name   string
		within string
	}{{"unmonitored", ""}, {"monitored", "1h"}} {
		b.Run(bm.name, func(b *testing.B) {
			ns := brokertest.New(b, func(c *broker.Config) { c.AutoCreate = true })
			client := ns.Client(b)
			s, err := scheduler.New(scheduler.Config{Client: client, MonitorQueue: monitorQueue})
			if err != nil {
				b.Fatal(err)
			}
			if err := s.MeasureClock(b.Context()); err != nil {
				b.Fatal(err)
			}
			p, err := New(Config{Client: client, Scheduler: s})
			if err != nil {
				b.Fatal(err)
			}
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
