// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"overdue/internal/broker"
)

// BenchmarkWaiting prints the bytes of an encoded message, and the memory that the broker needs for
// it in addition while it waits.
func BenchmarkWaiting(b *testing.B) {
	const waiting, sessions = 100_000, 1000
	later := func(i int) time.Duration { return time.Hour + time.Duration(i)*time.Millisecond }
	for _, c := range []struct {
		name  string
		queue broker.QueueConfig
		add   func(m *amqp.Message, i int)
	}{
		{"plain", broker.QueueConfig{}, func(m *amqp.Message, _ int) { m.Properties = nil }},
		{"message-id", broker.QueueConfig{}, func(*amqp.Message, int) {}},
		{"duplicate-detection", broker.QueueConfig{RequiresDuplicateDetection: true}, func(*amqp.Message, int) {}},
		{"time-to-live", broker.QueueConfig{}, func(m *amqp.Message, i int) { m.Header = &amqp.MessageHeader{TTL: later(i)} }},
		{"scheduled", broker.QueueConfig{}, func(m *amqp.Message, i int) {
			m.Annotations = amqp.Annotations{"x-opt-scheduled-enqueue-time": time.Now().Add(later(i))}
		}},
		{"sessions", broker.QueueConfig{RequiresSession: true}, func(m *amqp.Message, i int) {
			m.Properties.GroupID = new(fmt.Sprint("session-", i%sessions))
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			br, err := broker.New(broker.Config{})
			if err != nil {
				b.Fatal(err)
			}
			defer br.Close()
			c.queue.Name = "q"
			if _, err := br.Default().CreateQueue(c.queue); err != nil {
				b.Fatal(err)
			}
			e, err := br.Default().Entity("q")
			if err != nil {
				b.Fatal(err)
			}
			own, before := 0, heapInUse()
			for i := range waiting {
				m := amqp.NewMessage(make([]byte, 256))
				m.Properties = &amqp.MessageProperties{MessageID: fmt.Sprintf("%032x", i)}
				c.add(m, i)
				encoded, err := m.MarshalBinary()
				if err != nil {
					b.Fatal(err)
				}
				own = len(encoded)
				if err := e.Send(encoded); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(own), "B/encoded")
			b.ReportMetric(float64(heapInUse()-before)/waiting-float64(own), "B/further")
			b.ReportMetric(0, "ns/op") // of sending, which is not what this is about
		})
	}
}

// heapInUse returns the bytes of reachable objects.
func heapInUse() int64 {
	runtime.GC()
	runtime.GC() // the first call only starts the reclaim
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
