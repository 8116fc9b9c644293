// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"overdue/internal/broker"
)

// The default time to live changes while companions are outstanding: a message keeps the life
// that it was enqueued with, and its companion stands for the life that was stated when it was
// written.
func TestDefaultTimeToLiveThatChangesUnderCompanions(t *testing.T) {
	for _, slots := range []bool{true, false} {
		for _, to := range []time.Duration{2 * time.Second, time.Hour, 0} {
			t.Run(fmt.Sprintf("slots %v, to %v", slots, to), func(t *testing.T) {
				inModes(t, func(s *scene, c *broker.Config) {
					s.slots = slots
					c.Queues[0].DefaultMessageTimeToLive = 10 * time.Second
				}, func(s *scene) {
					s.queueLife = 10 * time.Second
					s.MeasureClock()
					s.startMonitor()
					due := map[string]time.Time{}
					send := func(id string, life time.Duration) {
						properties := ""
						if life > 0 {
							properties = ttl(life)
						}
						due[id] = time.Now().Add(min(max(life, 0), 10*time.Second))
						if life == 0 {
							due[id] = time.Now().Add(10 * time.Second)
						}
						s.send(workQueue, id, properties)
						time.Sleep(7 * time.Millisecond)
					}
					send("deferred", 6*time.Second)
					s.defers(workQueue)
					for i := range 5 {
						send(fmt.Sprint("own-", i), 6*time.Second)
						send(fmt.Sprint("capped-", i), time.Hour)
						send(fmt.Sprint("default-", i), 0)
					}
					time.Sleep(time.Second)
					ns := s.Namespace.Broker.Default()
					info, err := ns.QueueInfo(workQueue)
					s.Must(err)
					info.Config.DefaultMessageTimeToLive = to
					_, err = ns.UpdateQueue(info.Config)
					s.Must(err)
					time.Sleep(15 * time.Second)
					var notified []string
					for _, e := range s.Hook.Events() {
						notified = append(notified, e.Subject)
						if lag := e.Data.DeadLetteredTime.Sub(due[e.Subject]); lag < -time.Millisecond || lag > time.Second {
							t.Errorf("%s was dead-lettered %v after the end of the life that it was enqueued with, want at most a second", e.Subject, lag)
						}
					}
					slices.Sort(notified)
					var want []string
					for id := range due {
						want = append(want, id)
					}
					slices.Sort(want)
					if !slices.Equal(notified, want) {
						t.Errorf("notified of %v, want %v", notified, want)
					}
					s.Settled(2 * time.Second)
				})
			})
		}
	}
}
