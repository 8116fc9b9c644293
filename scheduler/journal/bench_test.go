// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"fmt"
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/testing/brokertest"
	"overdue/scheduler"
	"overdue/scheduler/journal"
)

// How many companions a second the journal takes from as many callers; they share its syncs.
func BenchmarkJournal(b *testing.B) {
	for _, callers := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			ns := brokertest.New(b, func(c *broker.Config) {
				c.AutoCreate = false
				c.Queues = []broker.QueueConfig{{Name: monitorQueue}}
			})
			ns.Broker.Default().Inject(broker.Fault{Entity: monitorQueue, Operation: broker.OnSend, Error: broker.EntityFull()})
			s, err := scheduler.New(scheduler.Config{MonitorQueue: monitorQueue, Links: ns.Links(b)})
			if err != nil {
				b.Fatal(err)
			}
			j, err := journal.Open(journal.Config{Scheduler: s, Directory: b.TempDir(), Namespace: "n", MaxSize: 1 << 30})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = j.Close(b.Context()) }()
			if err := j.Begin(one("first", time.Now()))(b.Context()); err != nil {
				b.Fatal(err)
			}
			work := make(chan int)
			done := make(chan error)
			for range callers {
				go func() {
					var failure error
					for i := range work {
						if err := j.Begin(one(fmt.Sprint(i), time.Now().Add(time.Hour)))(b.Context()); err != nil {
							failure = err
						}
					}
					done <- failure
				}()
			}
			b.ResetTimer()
			for i := range b.N {
				work <- i
			}
			close(work)
			for range callers {
				if err := <-done; err != nil {
					b.Error(err)
				}
			}
			st := j.Status()
			b.ReportMetric(float64(st.Bytes)/float64(st.Companions), "B/entry")
		})
	}
}
