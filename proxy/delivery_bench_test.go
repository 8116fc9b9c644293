// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"overdue/internal/amqp"
	"overdue/internal/amqp/relay"
	"overdue/internal/broker"
	"overdue/internal/servicebus/link"
	"overdue/internal/testing/brokertest"
	"overdue/scheduler"
)

// The cost of a monitored delivery for the sidecar in addition to being relayed, its companions
// included, until its app has the outcome.
func BenchmarkDelivery(b *testing.B) {
	encode := func(m *goamqp.Message) []byte {
		encoded, err := m.MarshalBinary()
		if err != nil {
			b.Fatal(err)
		}
		return encoded
	}
	type delivery struct {
		name    string
		payload []byte
		format  uint32
	}
	var deliveries []delivery
	for name, id := range map[string]any{"": nil, "-with-ids": "0f8fad5b-d9cb-469f-a165-70867728950e"} {
		single := encode(&goamqp.Message{
			Header: &goamqp.MessageHeader{TTL: time.Hour}, Properties: &goamqp.MessageProperties{MessageID: id}, Data: [][]byte{make([]byte, 256)},
		})
		batch := &goamqp.Message{}
		for range 100 {
			batch.Data = append(batch.Data, single)
		}
		deliveries = append(deliveries, delivery{"single" + name, single, 0}, delivery{"batch-100" + name, encode(batch), amqp.BatchMessageFormat})
	}
	slices.SortFunc(deliveries, func(a, b delivery) int { return strings.Compare(a.name, b.name) })
	for _, kind := range []string{"slot", "each"} {
		for _, c := range deliveries {
			b.Run(kind+"/"+c.name, func(b *testing.B) {
				ns := brokertest.NewTCP(b, func(c *broker.Config) { c.AutoCreate = true })
				links := link.New(link.Config{Host: "overdue.test", Plain: true, Dial: ns.Dial, Tokens: link.SAS("RootManageSharedAccessKey", "c2VjcmV0")})
				b.Cleanup(func() { _ = links.Close() })
				s, err := scheduler.New(scheduler.Config{
					MonitorQueue: monitorQueue, Links: links, Companions: kind,
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
					Settings: func(string) Settings { return Settings{Monitored: true, StampTTL: true, Findable: true} },
				})
				if err != nil {
					b.Fatal(err)
				}
				l := p.watch(linkOf(senderTo("orders")))
				answered := make(chan *amqp.Error, 1)
				b.ReportAllocs()
				b.ResetTimer()
				for b.Loop() {
					held, refused := l.Deliver(&relay.Delivery{Payload: c.payload, Format: c.format})
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
}
