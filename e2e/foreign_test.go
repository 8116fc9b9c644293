// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/queue"
)

// Other SDKs send what go-amqp cannot decode: a .NET decimal or char, a map with numbers for
// keys. Such a message, dead or alive, must not keep the others of its queue from their deadlines.
func TestMessageOfAnotherSDK(t *testing.T) {
	decimal := amqp.Map{{Key: "price", Value: amqp.Decimal128{1}}, {Key: "grade", Value: amqp.Char('A')}}
	properties, err := amqp.AppendValue(nil, decimal)
	if err != nil {
		t.Fatal(err)
	}
	body, err := amqp.AppendValue(nil, amqp.Described{Descriptor: uint64(0x77), Value: amqp.Map{{Key: amqp.List{}, Value: "v"}}})
	if err != nil {
		t.Fatal(err)
	}
	foreign := amqp.Message{ApplicationProperties: properties, Body: body}
	play(t, func(s *scene) {
		s.measure()
		s.startMonitor()
		send := func(id string, life time.Duration) {
			if _, err := s.queue(workQueue).Send(queue.Message{Body: foreign.Append(nil), MessageID: id, TTL: life}); err != nil {
				s.Fatal(err)
			}
		}
		send("live", time.Hour)       // at the head, where a nudge meets it
		send("mortal", 3*time.Second) // and no companion
		const n = 20
		for i := range n {
			s.send(workQueue, fmt.Sprint("m-", i), ttl(time.Duration(1000+200*i)*time.Millisecond))
		}
		time.Sleep(8 * time.Second)
		if got := len(s.hook.told()); got != n {
			s.Errorf("%d events, want %d", got, n)
		}
		if lags := s.lags(workQueue); len(lags) != n || lags[n-1] > time.Second {
			s.Errorf("%d dead letters, the latest %v late, want %d and a second at most", len(lags), lags[len(lags)-1], n)
		}
		// A nudge that meets one of them live cannot give it back: go-amqp closes the connection. It
		// comes back when its lock lapses.
		time.Sleep(time.Minute)
		if waiting := s.waiting(workQueue); len(waiting) != 1 || waiting[0].MessageID != "live" {
			s.Errorf("%d messages wait, want the live one", len(waiting))
		}
	})
}
