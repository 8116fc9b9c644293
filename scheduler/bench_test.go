// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/broker"
	"overdue/internal/testing/brokertest"
)

// Why companions are not written by request, which would tell their sequence numbers: a hundred of
// them as one transfer, and by request. The SDK takes one time for a request, so companions that
// are due in different slots take one each.
func BenchmarkHundredCompanions(b *testing.B) {
	const n = 100
	for _, bc := range []struct {
		name  string
		write func(b *testing.B, s *azservicebus.Sender, ms []*azservicebus.Message, due time.Time)
	}{
		{"as one transfer", func(b *testing.B, s *azservicebus.Sender, ms []*azservicebus.Message, due time.Time) {
			batch, err := s.NewMessageBatch(b.Context(), nil)
			if err != nil {
				b.Fatal(err)
			}
			for _, m := range ms {
				m.ScheduledEnqueueTime = &due
				if err := batch.AddMessage(m, nil); err != nil {
					b.Fatal(err)
				}
			}
			if err := s.SendMessageBatch(b.Context(), batch, nil); err != nil {
				b.Fatal(err)
			}
		}},
		{"by one request", func(b *testing.B, s *azservicebus.Sender, ms []*azservicebus.Message, due time.Time) {
			if _, err := s.ScheduleMessages(b.Context(), ms, due, nil); err != nil {
				b.Fatal(err)
			}
		}},
		{"by a request for each slot", func(b *testing.B, s *azservicebus.Sender, ms []*azservicebus.Message, due time.Time) {
			for i, m := range ms {
				if _, err := s.ScheduleMessages(b.Context(), []*azservicebus.Message{m}, due.Add(time.Duration(i)*time.Second), nil); err != nil {
					b.Fatal(err)
				}
			}
		}},
	} {
		b.Run(bc.name, func(b *testing.B) {
			ns := brokertest.New(b, func(c *broker.Config) { c.Queues = []broker.QueueConfig{{Name: monitorQueue}} })
			s, err := ns.Client(b).NewSender(monitorQueue, nil)
			if err != nil {
				b.Fatal(err)
			}
			due := time.Now().Add(time.Hour)
			body := make([]byte, 250)
			var ms []*azservicebus.Message
			for i := range n {
				id := fmt.Sprint("overdue-", i)
				ms = append(ms, &azservicebus.Message{MessageID: &id, Body: body})
			}
			for b.Loop() {
				bc.write(b, s, ms, due)
			}
			b.ReportMetric(float64(b.N)*n/b.Elapsed().Seconds(), "companions/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}
