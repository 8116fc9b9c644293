// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/testing/brokertest"
)

// Companions are messages of a queue like any other. Power is lost before they are due, and comes
// back after the deadlines: within a second all messages are dead-lettered and notified, once each.
func TestDeadlinesOutliveTheBroker(t *testing.T) {
	const n = 50
	disk := &brokertest.SlowDisk{Prompt: true}
	play(t, func(s *scene) {
		s.MeasureClock()
		for i := range n {
			s.send(workQueue, fmt.Sprint("m-", i), ttl(5*time.Second))
		}
		left := disk.PowerLost()
		time.Sleep(time.Minute)
		s.Namespace = brokertest.New(s.T, func(c *broker.Config) {
			c.AutoCreate = false
			c.Disk = left
		})
		s.Client = s.Namespace.Client(s.T)
		s.startMonitor()
		time.Sleep(time.Second)
		if got := len(s.Lags(workQueue)); got != n {
			s.Errorf("a second after power was back, %d messages are dead-lettered, want %d", got, n)
		}
		subjects := s.Hook.Subjects()
		if notified := slices.Compact(slices.Clone(subjects)); len(subjects) != n || len(notified) != n {
			s.Errorf("%d events about %d messages, want one for each of %d", len(subjects), len(notified), n)
		}
	}, func(_ *scene, c *broker.Config) { c.Disk = disk })
}
