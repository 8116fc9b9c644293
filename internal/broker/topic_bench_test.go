// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"overdue/internal/broker"
)

// published is a message of 256 bytes with properties that rules look at.
func published(tb testing.TB) []byte {
	tb.Helper()
	m := amqp.NewMessage(make([]byte, 256))
	m.Properties = &amqp.MessageProperties{MessageID: "0123456789abcdef", Subject: new("order.created")}
	m.ApplicationProperties = map[string]any{"tenant": "contoso", "quantity": int64(10), "region": "west", "kind": "k0"}
	b, err := m.MarshalBinary()
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// BenchmarkPublish is what a topic costs: one message to the subscriptions,
// without a network. Of the rules none but the last matches.
func BenchmarkPublish(b *testing.B) {
	sql := func(i int) broker.Filter {
		return broker.Filter{SQL: &broker.SQLFilter{Expression: fmt.Sprintf("kind = 'k%d' AND quantity > 5", i)}}
	}
	correlation := func(i int) broker.Filter {
		return broker.Filter{Correlation: &broker.CorrelationFilter{Label: new("order.created"), Properties: broker.ValuesOf(map[string]any{"kind": fmt.Sprintf("k%d", i)})}}
	}
	all := func(int) broker.Filter { return broker.Filter{True: true} }
	for _, c := range []struct {
		name                 string
		subscriptions, rules int
		filter               func(int) broker.Filter
		action               string
	}{
		{"queue", 0, 0, nil, ""},
		{"1sub", 1, 1, all, ""},
		{"10subs", 10, 1, all, ""},
		{"100subs", 100, 1, all, ""},
		{"1sub/100sql", 1, 100, sql, ""},
		{"1sub/100correlation", 1, 100, correlation, ""},
		{"100subs/1sql", 100, 1, sql, ""},
		{"1sub/set", 1, 1, all, "SET quantity = quantity + 1"},
		{"1sub/remove", 1, 1, all, "REMOVE region"},
	} {
		b.Run(c.name, func(b *testing.B) {
			br, err := broker.New(broker.Config{})
			if err != nil {
				b.Fatal(err)
			}
			defer br.Close()
			n := br.Default()
			if c.subscriptions == 0 {
				_, err = n.CreateQueue(broker.QueueConfig{Name: "t"})
			} else {
				_, err = n.CreateTopic(broker.TopicConfig{Name: "t"})
			}
			if err != nil {
				b.Fatal(err)
			}
			for i := range c.subscriptions {
				rules := make([]broker.RuleConfig, c.rules)
				for j := range rules {
					rules[j] = broker.RuleConfig{Name: fmt.Sprint("r", j), Filter: c.filter(c.rules - 1 - j + i), Action: broker.Action{SQL: c.action}}
				}
				if _, err := n.CreateSubscription("t", broker.SubscriptionConfig{Name: fmt.Sprint("s", i)}, rules...); err != nil {
					b.Fatal(err)
				}
			}
			e, err := n.Entity("t")
			if err != nil {
				b.Fatal(err)
			}
			first := e
			if c.subscriptions > 0 {
				if first, err = n.Entity("t/Subscriptions/s0"); err != nil {
					b.Fatal(err)
				}
			}
			m := published(b)
			b.ReportAllocs()
			sent := 0
			for b.Loop() {
				if err := e.Send(m); err != nil {
					b.Fatal(err)
				}
				if sent++; sent%1024 == 0 { // waiting messages are not what this is about
					b.StopTimer()
					empty(b, n, c.subscriptions)
					b.StartTimer()
				}
			}
			if got := first.Queue().Counts().Active; got != sent%1024 {
				b.Errorf("%d messages arrived, want %d", got, sent%1024)
			}
		})
	}
}

func empty(b *testing.B, n *broker.Namespace, subscriptions int) {
	b.Helper()
	paths := []string{"t"}
	if subscriptions > 0 {
		paths = nil // nothing waits in a topic
	}
	for i := range subscriptions {
		paths = append(paths, fmt.Sprint("t/Subscriptions/s", i))
	}
	for _, path := range paths {
		e, err := n.Entity(path)
		if err != nil {
			b.Fatal(err)
		}
		for deleted := 1; deleted > 0; {
			if deleted, err = e.Queue().DeleteBatch(4000, time.Now().Add(time.Hour), nil); err != nil {
				b.Fatal(err)
			}
		}
	}
}
