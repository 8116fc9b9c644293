// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/testing/pipenet"
	"overdue/internal/testing/racetest"
)

// Several monitors work on one entity at the same time. They do no harm: each deadline is kept
// and notified once, live messages are as they were. And they do little of the work twice.
func TestMonitorsSideBySide(t *testing.T) {
	racetest.Skip(t, "it needs thousands of messages; small scenes show the races")
	const n = 600 // more than one monitor is given at once
	for _, kind := range []struct {
		name      string
		stamp     bool
		configure func(*scene, *broker.Config)
	}{
		{"native", true, plain},
		{"by hand", false, plain},
		{"sessions, native", true, withSessions},
		{"sessions, by hand", false, withSessions},
	} {
		t.Run(kind.name, func(t *testing.T) {
			costs := map[int]float64{}
			for _, workers := range []int{1, 4} {
				t.Run(fmt.Sprint(workers), func(t *testing.T) {
					play(t, func(s *scene) {
						s.stamp = kind.stamp
						s.MeasureClock()
						for range workers {
							s.startMonitor()
						}
						due := time.Now().Add(10 * time.Second).UTC()
						for i := range n {
							if i%4 == 0 {
								s.send(workQueue, fmt.Sprint("live-", i), ttl(time.Hour)+","+session(fmt.Sprint(i%5)))
							}
							s.send(workQueue, fmt.Sprint("m-", i), session(fmt.Sprint(i%5)), "Overdue-Deadline", due.Format(`"`+time.RFC3339Nano+`"`))
						}
						s.Namespace.Net.Delay(pipenet.Both, 5*time.Millisecond) // so that passes take their time, and meet
						before := livingOf(s)
						time.Sleep(time.Minute)
						if after := livingOf(s); !slices.EqualFunc(before, after, func(a, b living) bool {
							return a.ID == b.ID && a.Number == b.Number && a.DeliveryCount == b.DeliveryCount
						}) {
							s.Errorf("the live messages changed: %d before, %d after", len(before), len(after))
						}
						var latest time.Duration
						for _, m := range s.Dead(workQueue) {
							lag := m.DeadLetteredTime.Sub(due)
							latest = max(latest, lag)
							if lag < 0 {
								s.Errorf("%s was dead-lettered %v early", m.MessageID, -lag)
							}
						}
						if dead := len(s.Dead(workQueue)); dead != n || latest > 5*time.Second {
							s.Errorf("%d dead letters, the latest %v late; want %d and 5s", dead, latest, n)
						}
						if notified := s.Hook.Subjects(); len(notified) != n || len(slices.Compact(notified)) != n {
							s.Errorf("%d events, want one about each of %d messages", len(notified), n)
						}
						costs[workers] = s.Operations("") / n
						s.Logf("%d monitors: %.2f operations a message, latest %v", workers, costs[workers], latest)
					}, kind.configure)
				})
			}
			// By hand one scan serves all, but several may have begun by then.
			most := map[bool]float64{true: 1.1, false: 2}[kind.stamp]
			if costs[4] > most*costs[1] {
				t.Errorf("4 monitors cost %.2f operations a message, 1 costs %.2f; want at most %v times as much", costs[4], costs[1], most)
			}
		})
	}
}
