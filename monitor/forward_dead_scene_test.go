// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"fmt"
	"testing"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/broker/queue"
)

// Dead letters move on to another queue. The events are notified anyway, by the dead letters there,
// after an expiry by any client.
func TestDeadLettersThatAreForwarded(t *testing.T) {
	for _, stamp := range []bool{true, false} {
		t.Run(fmt.Sprint("stamp ", stamp), func(t *testing.T) {
			inModes(t, func(_ *scene, c *broker.Config) {
				c.Queues[0].ForwardDeadLetteredMessagesTo = "graves"
				c.Queues = append(c.Queues, broker.QueueConfig{Name: "graves", DeadLetteringOnMessageExpiration: true})
			}, func(s *scene) {
				s.stamp = stamp
				s.MeasureClock()
				s.startMonitor()
				var ids []string
				for i := range 20 {
					id := fmt.Sprintf("m-%02d", i)
					s.send(workQueue, id, "", "Overdue-Within", fmt.Sprintf(`"%dms"`, 3000+50*i))
					ids = append(ids, id)
				}
				s.send(workQueue, "rejected", "", "Overdue-Within", `"3s"`)
				time.Sleep(8 * time.Second)
				// Their times to live begin again there, and end once more.
				if n := len(s.Waiting("graves")) + len(s.Dead("graves")); n != len(ids)+1 {
					s.Errorf("%d messages were forwarded, want %d", n, len(ids)+1)
				}
				s.wantNotified(append(ids, "rejected")...)
				s.Settled(time.Second)
			})
		})
	}
}

// A target that is busy hides the dead letters in it for a while. They are no less missed.
func TestForwardedDeadLettersOfABusyTargetAreNotifiedLater(t *testing.T) {
	play(t, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		busy := s.Namespace.Broker.Default().Inject(broker.Fault{
			Operation: broker.OnManagement, Entity: "graves", Error: amqp.Errorf("com.microsoft:server-busy", "Not now."),
		})
		var ids []string
		for i := range 10 {
			id := fmt.Sprintf("m-%02d", i)
			s.send(workQueue, id, "", "Overdue-Within", `"10s"`)
			ids = append(ids, id)
		}
		time.Sleep(15 * time.Second) // five seconds later, their times to live end once more
		busy()
		time.Sleep(time.Minute)
		s.wantNotified(ids...)
		s.Settled(time.Second)
	}, func(_ *scene, c *broker.Config) {
		c.Expiry = queue.Eager // before the monitor could see anything
		c.Queues[0].ForwardDeadLetteredMessagesTo = "graves"
		c.Queues = append(c.Queues, broker.QueueConfig{Name: "graves"})
	})
}
