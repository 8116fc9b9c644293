// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"fmt"
	"testing"
	"time"

	"overdue/internal/broker"

	"github.com/google/go-cmp/cmp"
)

// Numbers of a partitioned queue are not in order of time. Overdue messages stand among live
// ones in all partitions, and one of them is held by a consumer.
func TestPartitionedQueue(t *testing.T) {
	for _, stamp := range []bool{true, false} {
		t.Run(fmt.Sprint("stamp ", stamp), func(t *testing.T) {
			inModes(t, func(_ *scene, c *broker.Config) { c.Queues[0].EnablePartitioning = true }, func(s *scene) {
				s.stamp = stamp
				s.MeasureClock()
				s.startMonitor()
				s.send(workQueue, "held", "", "Overdue-Within", `"2s"`)
				r, held := s.receive(workQueue)
				const live = 300
				var want []string
				for i := range live {
					s.send(workQueue, fmt.Sprint("live-", i), ttl(time.Hour))
					if i%30 == 10 {
						id := fmt.Sprint("m-", i)
						s.send(workQueue, id, "", "Overdue-Within", `"3s"`)
						want = append(want, id)
					}
				}
				before := livingOf(s)
				time.Sleep(10 * time.Second)
				if diff := cmp.Diff(before, livingOf(s)); diff != "" {
					s.Errorf("the live messages changed (-before +after):\n%s", diff)
				}
				if dead := len(s.Dead(workQueue)); dead != len(want) {
					s.Errorf("%d dead letters, want %d", dead, len(want))
				}
				s.wantNotified(want...)
				if err := r.AbandonMessage(s.Context(), held, nil); err != nil {
					s.Fatal(err)
				}
				if err := r.Close(s.Context()); err != nil {
					s.Fatal(err)
				}
				time.Sleep(1500 * time.Millisecond)
				s.wantNotified(append(want, "held")...)
			})
		})
	}
}

// A deadline that was met costs a read of the queue, not an event.
func TestPartitionedQueueThatIsServed(t *testing.T) {
	inModes(t, func(_ *scene, c *broker.Config) { c.Queues[0].EnablePartitioning = true }, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		for i := range 20 {
			s.send(workQueue, fmt.Sprint("m-", i), ttl(3*time.Second))
			r, m := s.receive(workQueue)
			if err := r.CompleteMessage(s.Context(), m, nil); err != nil {
				s.Fatal(err)
			}
		}
		time.Sleep(6 * time.Second)
		s.wantNotified()
		s.Settled(time.Second)
	})
}
