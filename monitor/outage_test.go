// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"fmt"
	"testing"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/testing/racetest"
)

// The line may be down for any time. A second after it is back, all messages that have become due
// meanwhile are dead-lettered, and later ones are not late because of earlier failures. One message
// is held by a consumer all along, so that a watch fails all along.
func TestMissedDeadlinesAfterAnOutage(t *testing.T) {
	const bound = time.Second
	outages := []time.Duration{300 * time.Millisecond, 1200 * time.Millisecond, 7 * time.Second, time.Minute, 10 * time.Minute, time.Hour}
	for _, outage := range outages[:racetest.Sized(len(outages), 3)] {
		for _, kind := range []string{"native", "scan", "slots"} {
			t.Run(fmt.Sprint(outage, ", ", kind), func(t *testing.T) {
				play(t, func(s *scene) {
					s.stamp, s.slots = kind != "scan", kind == "slots"
					s.MeasureClock()
					s.startMonitor()
					s.send(workQueue, "held", "", "Overdue-Within", `"1s"`)
					r, _ := s.receive(workQueue)
					defer func() { _ = r.Close(s.Context()) }()
					time.Sleep(3 * time.Second) // it is checked again and again
					const n = 5
					for i := range n {
						s.send(workQueue, fmt.Sprint("before-", i), "", "Overdue-Within", fmt.Sprintf(`"%dms"`, 200+10*i))
					}
					s.Namespace.Net.Refuse(true)
					s.Namespace.Net.Cut()
					time.Sleep(outage)
					s.Namespace.Net.Refuse(false)
					back := time.Now()
					time.Sleep(bound)
					found := map[string]bool{}
					for _, m := range s.Dead(workQueue) {
						found[m.MessageID] = true
					}
					for i := range n {
						if !found[fmt.Sprint("before-", i)] {
							s.Errorf("before-%d is no dead letter %v after the line was back", i, bound)
						}
					}
					for i := range n {
						s.send(workQueue, fmt.Sprint("after-", i), "", "Overdue-Within", `"1s"`)
					}
					time.Sleep(5 * time.Second)
					after := 0
					for _, m := range s.Dead(workQueue) {
						if m.EnqueuedTime.Before(back) {
							continue
						}
						after++
						if lag := m.DeadLetteredTime.Sub(m.EnqueuedTime.Add(time.Second)); lag > bound {
							s.Errorf("%s was %v late, want at most %v", m.MessageID, lag, bound)
						}
					}
					if after != n {
						s.Errorf("%d of %d messages that came after the outage are dead letters", after, n)
					}
				}, func(_ *scene, c *broker.Config) { c.Queues[0].LockDuration = 5 * time.Minute })
			})
		}
	}
}

// A check that keeps failing for its own reasons is repeated less and less often. A later check
// does not inherit that.
func TestAFailingCheckDelaysNoOther(t *testing.T) {
	play(t, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		s.send(workQueue, "first", ttl(time.Second))
		remove := s.Namespace.Broker.Default().Inject(broker.Fault{Operation: broker.OnManagement, Entity: workQueue, Error: amqp.Errorf("com.microsoft:argument-error", "Not now.")})
		s.send(workQueue, "second", ttl(20*time.Second))
		time.Sleep(20*time.Second + 250*time.Millisecond)
		remove()
		time.Sleep(time.Second)
		for _, m := range s.Dead(workQueue) {
			if lag := m.DeadLetteredTime.Sub(m.EnqueuedTime.Add(20 * time.Second)); m.MessageID == "second" && lag > time.Second {
				s.Errorf("the second was %v late, want a second at most", lag)
			}
		}
		if n := len(s.Dead(workQueue)); n != 2 {
			s.Errorf("%d dead letters a second after the failures have ended, want both", n)
		}
		time.Sleep(11 * time.Second) // the first is asked after again
		notifiedOnceEach(s, 2)
	})
}
