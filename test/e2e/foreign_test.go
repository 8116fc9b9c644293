// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/broker/queue"
)

// Other SDKs send what go-amqp cannot decode: a .NET decimal or char, a map with numbers for
// keys. Others do not keep to what a symbol or a character may be. Such a message, dead or
// alive, must not keep the others of its queue from their deadlines, and a live one comes to no
// harm.
func TestMessageOfAnotherSDK(t *testing.T) {
	notASCII := amqp.Raw{0xa3, 2, 0xc3, 0xbc}
	decimal := amqp.Map{{Key: notASCII, Value: notASCII}, {Key: "sign", Value: amqp.Raw{0x73, 0xff, 0xff, 0xff, 0xff}}, {Key: "price", Value: amqp.Decimal128{1}}, {Key: "grade", Value: amqp.Char('A')}}
	properties, err := amqp.AppendValue(nil, decimal)
	if err != nil {
		t.Fatal(err)
	}
	foreign := func(size int) []byte {
		body, err := amqp.AppendValue(nil, amqp.Described{Descriptor: uint64(0x77), Value: amqp.Map{{Key: amqp.List{}, Value: make([]byte, size)}}})
		if err != nil {
			t.Fatal(err)
		}
		m := amqp.Message{Properties: (&amqp.Properties{ContentType: "text/ü"}).Raw(), ApplicationProperties: properties, Body: body}
		return m.Append(nil)
	}
	for _, stamp := range []bool{true, false} {
		t.Run(fmt.Sprint("stamp ", stamp), func(t *testing.T) {
			play(t, func(s *scene) {
				s.stamp = stamp
				s.MeasureClock()
				s.startMonitor()
				send := func(id string, life time.Duration, body int) {
					if _, err := s.Queue(workQueue).Send(queue.Message{Body: foreign(body), MessageID: id, TTL: life}); err != nil {
						s.Fatal(err)
					}
				}
				send("live", time.Hour, 10)            // at the head, where a nudge meets it
				send("live, large", time.Hour, 200000) // of several frames
				send("mortal", 3*time.Second, 10)      // and no companion
				const n = 20
				for i := range n {
					s.send(workQueue, fmt.Sprint("m-", i), "", "Overdue-Within", fmt.Sprintf(`"%dms"`, 1000+200*i))
				}
				time.Sleep(8 * time.Second)
				if got := len(s.Hook.Events()); got != n {
					s.Errorf("%d events, want %d", got, n)
				}
				dead := 0
				for _, m := range s.Dead(workQueue) {
					var i int
					if _, err := fmt.Sscanf(m.MessageID, "m-%d", &i); err != nil {
						continue
					}
					dead++
					if lag := m.DeadLetteredTime.Sub(m.EnqueuedTime.Add(time.Duration(1000+200*i) * time.Millisecond)); lag < 0 || lag > time.Second {
						s.Errorf("%s was dead-lettered %v after its deadline, want 0 to 1s", m.MessageID, lag)
					}
				}
				if dead != n {
					s.Errorf("%d dead letters, want %d", dead, n)
				}
				time.Sleep(5 * time.Minute) // locks would lapse
				left := 0
				for _, m := range s.Waiting(workQueue) {
					if left++; m.DeliveryCount != 0 {
						s.Errorf("%s has lost %d deliveries, want none", m.MessageID, m.DeliveryCount)
					}
				}
				if left < 2 { // a scan is no nudge, and may leave the mortal one
					s.Errorf("%d messages wait, want those that live", left)
				}
			})
		})
	}
}
