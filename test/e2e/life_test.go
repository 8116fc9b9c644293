// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/amqp"
	"overdue/scheduler"
)

// A life that no header holds is stated by when the message was made and when it ends. Nobody may
// take it for the 49.7 days that the header stops at. Otherwise the proxy would have the monitor
// check too early, and the monitor would expire by hand a message that lives on.
func TestALifeThatNoHeaderHolds(t *testing.T) {
	const life = 100 * 24 * time.Hour
	made := time.Now()
	stating := func(id string, later *time.Time) *azservicebus.AMQPAnnotatedMessage {
		m := &azservicebus.AMQPAnnotatedMessage{
			Body:       azservicebus.AMQPAnnotatedMessageBody{Data: [][]byte{[]byte(id)}},
			Header:     &azservicebus.AMQPAnnotatedMessageHeader{TTL: amqp.MaxTTL, Priority: 4},
			Properties: &azservicebus.AMQPAnnotatedMessageProperties{MessageID: id, CreationTime: &made, AbsoluteExpiryTime: to.Ptr(made.Add(life))},
		}
		if later != nil {
			m.MessageAnnotations = map[any]any{"x-opt-scheduled-enqueue-time": *later}
		}
		return m
	}
	for name, send := range map[string]func(s *scene, sender *azservicebus.Sender) error{
		"REST": func(s *scene, _ *azservicebus.Sender) error {
			s.send(workQueue, "m", ttl(life))
			return nil
		},
		"AMQP": func(s *scene, sender *azservicebus.Sender) error {
			return sender.SendAMQPAnnotatedMessage(s.Context(), stating("m", nil), nil)
		},
		"batch": func(s *scene, sender *azservicebus.Sender) error {
			batch, err := sender.NewMessageBatch(s.Context(), nil)
			if err == nil {
				err = batch.AddAMQPAnnotatedMessage(stating("m", nil), nil)
			}
			if err != nil {
				return err
			}
			return sender.SendMessageBatch(s.Context(), batch, nil)
		},
		"scheduled": func(s *scene, sender *azservicebus.Sender) error {
			_, err := sender.ScheduleAMQPAnnotatedMessages(s.Context(), []*azservicebus.AMQPAnnotatedMessage{stating("m", nil)}, time.Now().Add(time.Second), nil)
			return err
		},
		"sent to be enqueued later": func(s *scene, sender *azservicebus.Sender) error {
			return sender.SendAMQPAnnotatedMessage(s.Context(), stating("m", to.Ptr(time.Now().Add(time.Second))), nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(s *scene) {
				made = time.Now()
				s.stamp = false // what is stamped is not what was stated
				s.MeasureClock()
				s.startMonitor()
				if err := send(s, s.app(s.endpoint())); err != nil {
					s.Fatal(err)
				}
				time.Sleep(10 * time.Second)
				m := s.Waiting(workQueue)
				if len(m) != 1 || m[0].TTL != life || m[0].ExpiresAt.Sub(m[0].EnqueuedTime) != life {
					s.Fatalf("there wait %+v, want one that lives for %v", m, life)
				}
				// The time in the header is over: a check then must see that the message lives on.
				s.Namespace.Broker.SetClockOffset(amqp.MaxTTL + time.Hour)
				now := s.Namespace.Broker.Now()
				err := s.Scheduler.Schedule(s.Context(), scheduler.Companion{Entity: workQueue, Due: now, References: []scheduler.Reference{{
					MessageID: "m", Sent: m[0].EnqueuedTime, Within: amqp.MaxTTL, Deadline: now, Stated: "ttl",
				}}})
				if err != nil {
					s.Fatal(err)
				}
				time.Sleep(time.Minute)
				if n := len(s.Waiting(workQueue)); n != 1 {
					s.Errorf("%d messages wait after 49.7 days, want the one that lives for 100", n)
				}
				if notified := s.Hook.Events(); len(notified) != 0 {
					s.Errorf("notified of %d missed deadlines after 49.7 days, want none", len(notified))
				}
				s.Namespace.Broker.SetClockOffset(life)
				time.Sleep(time.Minute)
				if lags := s.Lags(workQueue); len(lags) != 1 {
					s.Errorf("%d dead letters after %v, want one", len(lags), life)
				}
				notifiedOnceEach(s, 1)
			})
		})
	}
}
