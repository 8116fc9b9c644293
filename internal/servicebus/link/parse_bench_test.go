// SPDX-License-Identifier: Apache-2.0

package link

import (
	"fmt"
	"testing"
	"time"

	"overdue/internal/amqp"
)

// BenchmarkParsePage reads a page of 250 messages as the broker shows them to a peek.
func BenchmarkParsePage(b *testing.B) {
	var messages amqp.List
	for i := range 250 {
		id := fmt.Sprintf("order-%012d", i)
		annotations, err := amqp.AppendValue(nil, amqp.Map{
			{Key: amqp.Symbol("x-opt-enqueued-time"), Value: amqp.TimestampOf(time.Unix(100, int64(i)*1e6))},
			{Key: amqp.Symbol("x-opt-sequence-number"), Value: int64(i + 1)},
		})
		if err != nil {
			b.Fatal(err)
		}
		header := amqp.Header{Durable: true, TTL: 10_000, HasTTL: true}
		properties := amqp.Properties{MessageID: id}
		m := amqp.Message{Header: header.Raw(), MessageAnnotations: annotations, Properties: properties.Raw()}
		messages = append(messages, amqp.Map{{Key: "message", Value: m.Append(nil)}})
	}
	body, err := amqp.AppendValue(nil, amqp.Map{{Key: "messages", Value: messages}})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		page, err := parsePage(body, func(int, *Message) error { return nil })
		if err != nil || len(page) != 250 || page[7].TimeToLive != 10*time.Second || page[7].MessageID == "" {
			b.Fatal(err, len(page))
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/250, "ns/message")
}
