// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"testing"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/broker"
)

// The service refuses a peek at a queue to which nobody may send, for example. Nothing is known
// then: no deadline is met or missed, and none is forgotten.
func TestAPeekThatIsRefusedIsNoVerdict(t *testing.T) {
	for _, condition := range []amqp.Symbol{"amqp:not-allowed", "com.microsoft:entity-disabled", "amqp:unauthorized-access", "com.microsoft:argument-error"} {
		for name, configure := range map[string]func(*scene, *broker.Config){"queue": func(*scene, *broker.Config) {}, "sessions": withSessions} {
			t.Run(string(condition)+", "+name, func(t *testing.T) {
				inModes(t, configure, func(s *scene) {
					s.MeasureClock()
					s.startMonitor()
					s.send(workQueue, "m-1", session("a")+","+ttl(3*time.Second))
					s.send(workQueue, "m-2", session("a"), "Overdue-Within", `"3s"`)
					allow := s.Namespace.Broker.Default().Inject(broker.Fault{
						Entity: workQueue, Operation: broker.OnManagement, Request: "com.microsoft:peek-message", Error: amqp.Errorf(condition, "No."),
					})
					time.Sleep(2 * time.Minute)
					for _, verdict := range []string{"met", "missed", "unknown"} {
						if n := s.Verdicts(workQueue, verdict); n != 0 {
							s.Errorf("%v deadlines are %s while no peek is answered, want none", n, verdict)
						}
					}
					allow()
					time.Sleep(20 * time.Second)
					s.wantNotified("m-1", "m-2")
					s.Settled(time.Second)
				})
			})
		}
	}
}

// The same of the queue that dead letters are forwarded to: a dead letter that nobody can read
// there is not a message that was received.
func TestAPeekThatIsRefusedWhereDeadLettersGoIsNoVerdict(t *testing.T) {
	inModes(t, func(_ *scene, c *broker.Config) {
		c.Queues[0].ForwardDeadLetteredMessagesTo = "graves"
		c.Queues = append(c.Queues, broker.QueueConfig{Name: "graves"})
	}, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		s.Namespace.Broker.Default().Inject(broker.Fault{
			Entity: "graves", Operation: broker.OnManagement, Request: "com.microsoft:peek-message", Error: amqp.Errorf("amqp:not-allowed", "No."),
		})
		const n = 5
		for range n {
			s.send(workQueue, "m", ttl(3*time.Second))
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute)
		met, missed, unknown := s.Verdicts(workQueue, "met"), s.Verdicts(workQueue, "missed"), s.Verdicts(workQueue, "unknown")
		if met != 0 || missed+unknown != n {
			s.Errorf("met %v, missed %v, unknown %v; want all %d missed or unknown", met, missed, unknown, n)
		}
		s.Settled(time.Second)
	})
}
