// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"fmt"
	"testing"
	"time"

	"overdue/internal/broker"
)

// A work queue is deleted and recreated with the same settings, while its deadlines are watched.
// Its numbers begin at 1 again, and no knowledge of the first messages may hide the new ones. Those
// that died with the old queue are notified of nowhere.
func TestDeadlinesOfARecreatedQueue(t *testing.T) {
	turn := 0
	for _, slots := range []bool{true, false} {
		for _, blind := range []bool{false, true} {
			turn++
			t.Run(fmt.Sprintf("slots %v, blind %v", slots, blind), func(t *testing.T) {
				inModeOfTurn(t, turn, func(s *scene, c *broker.Config) {
					s.slots, s.undescribed = slots, blind
					c.Queues[0].MaxDeliveryCount = 1000
				}, func(s *scene) {
					s.MeasureClock()
					s.startMonitor()
					// So many that a page ends within them, half of which are missed before and
					// half of which go with the queue.
					for i := range 12 {
						lives := make([]time.Duration, 50)
						for j := range lives {
							lives[j] = 2 * time.Second
							if j%2 == 0 {
								lives[j] = time.Hour
							}
						}
						s.sendLives(workQueue, lives)
						time.Sleep(time.Duration(50+i) * time.Millisecond)
					}
					for i := range 4 { // held and set aside
						s.send(workQueue, fmt.Sprint("old-", i), ttl(8*time.Second))
					}
					time.Sleep(2500 * time.Millisecond)
					before := len(s.Hook.Events())
					if before != 300 {
						s.Fatalf("%d notified before, want 300", before)
					}
					s.recreate(workQueue)
					if err := s.trySend(workQueue, "first", ttl(time.Hour)); err != nil {
						s.Fatalf("the first send to the new queue: %v", err)
					}
					var want []string
					deferred := "d"
					s.send(workQueue, deferred, ttl(4*time.Second))
					s.defers(workQueue)
					want = append(want, deferred)
					for i := range 20 {
						id := fmt.Sprint("new-", i)
						s.send(workQueue, id, ttl(time.Duration(1500+100*i)*time.Millisecond))
						want = append(want, id)
						time.Sleep(30 * time.Millisecond)
					}
					time.Sleep(7 * time.Second)
					notified := map[string]int{}
					for _, e := range s.Hook.Events()[before:] {
						notified[e.Subject]++
						if lag := e.Data.DeadLetteredTime.Sub(e.Data.Deadline); lag < 0 || lag > time.Second {
							s.Errorf("%s was dead-lettered %v after its deadline, want at most a second", e.Subject, lag)
						}
					}
					for _, id := range want {
						if notified[id] != 1 {
							s.Errorf("%s was notified %d times, want once", id, notified[id])
						}
						delete(notified, id)
					}
					if len(notified) > 0 {
						s.Errorf("notified of what has gone with the queue: %v", notified)
					}
				})
			})
		}
	}
}

// remake deletes a queue and makes it again as it was.
func (s *scene) recreate(name string) {
	s.Helper()
	ns := s.Namespace.Broker.Default()
	info, err := ns.QueueInfo(name)
	s.Must(err)
	s.Must(ns.DeleteQueue(name))
	_, err = ns.CreateQueue(info.Config)
	s.Must(err)
	if sender := s.senders[name]; sender != nil { // its link went with the queue
		_ = sender.Close(s.Context())
		delete(s.senders, name)
	}
}
