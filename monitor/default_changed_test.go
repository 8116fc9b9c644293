// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"overdue/internal/broker"
)

// settledAfterChange is until when the queue is read again after its default was lowered, and a
// note is on the monitor queue.
const settledAfterChange = 2*time.Minute + 10*time.Second

// setDefaultLife changes the default time to live of the work queue; 0: none.
func (s *scene) setDefaultLife(d time.Duration) {
	s.Helper()
	ns := s.Namespace.Broker.Default()
	info, err := ns.QueueInfo(workQueue)
	s.Must(err)
	info.Config.DefaultMessageTimeToLive = d
	_, err = ns.UpdateQueue(info.Config)
	s.Must(err)
}

// The default time to live changes while companions are outstanding. A message keeps the life that
// it was enqueued with, and its companion stands for the life that was stated when it was written.
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
					s.setDefaultLife(to)
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
					s.Settled(settledAfterChange + to) // companions over windows that end with the new default
				})
			})
		}
	}
}

// A message that states its deadline was sent before a shorter default came. The default does not
// hold for it, so neither does the broker expire it, nor may the monitor.
func TestDefaultTimeToLiveThatComesAfterAStatedDeadline(t *testing.T) {
	for _, c := range []struct {
		name                string
		deferred, scheduled bool
	}{{name: "active"}, {name: "deferred", deferred: true}, {name: "scheduled", scheduled: true}} {
		t.Run(c.name, func(t *testing.T) {
			play(t, func(s *scene) {
				const within, delay = 8 * time.Second, 3 * time.Second
				s.stamp = false
				s.MeasureClock()
				s.startMonitor()
				properties := ""
				if c.scheduled {
					properties = fmt.Sprintf(`"ScheduledEnqueueTimeUtc":%q,`, time.Now().Add(delay).UTC().Format(http.TimeFormat)) + ttl(time.Hour)
				}
				s.send(workQueue, "m", properties, "Overdue-Within", fmt.Sprintf("%q", within))
				if c.deferred {
					s.defers(workQueue)
				}
				time.Sleep(time.Second)
				s.setDefaultLife(2 * time.Second)
				time.Sleep(20 * time.Second)
				dead := s.Dead(workQueue)
				if len(dead) != 1 {
					s.Fatalf("%d dead letters, want 1", len(dead))
				}
				if lag := dead[0].DeadLetteredTime.Sub(dead[0].EnqueuedTime.Add(within)); lag < 0 || lag > time.Second {
					s.Errorf("dead-lettered %v after its deadline, want 0 to 1s", lag)
				}
				s.Settled(settledAfterChange)
			})
		})
	}
}

// Each of many companions assumes a default of a deferred message with their id, which has none.
// One attempt shows that.
func TestADefaultThatManyCompanionsAssumeIsTriedOnce(t *testing.T) {
	play(t, func(s *scene) {
		s.send(workQueue, "same", "")
		number := s.defers(workQueue)
		s.setDefaultLife(6 * time.Second)
		s.queueLife = 6 * time.Second
		s.startMonitor() // the clock of the broker is not measured
		for range 8 {
			s.send(workQueue, "same", "")
			time.Sleep(300 * time.Millisecond)
		}
		time.Sleep(30 * time.Second)
		left := s.Waiting(workQueue)
		if len(left) != 1 || left[0].SequenceNumber != number || left[0].DeliveryCount > 2 {
			s.Errorf("left are %v, want message %d alone, on its second delivery at most", left, number)
		}
		notifiedOnceEach(s, 8)
	})
}

// A scan takes no message off the queue whose time to live may be longer than the default says. So
// the strategy scan leaves such a message to the broker, which a nudge wakes.
func TestADefaultThatMayBeNewerThanTheMessageIsLeftToTheBroker(t *testing.T) {
	play(t, func(s *scene) {
		s.queueLife, s.settings.Strategy = 5*time.Second, "scan"
		s.startMonitor() // the clock of the broker is not measured
		properties := fmt.Sprintf(`"ScheduledEnqueueTimeUtc":%q`, time.Now().Add(2*time.Second).UTC().Format(http.TimeFormat))
		s.send(workQueue, "m", properties)
		time.Sleep(30 * time.Second)
		s.wantDead(workQueue, "TTLExpiredException", 5*time.Second, time.Second, "m")
		s.wantNotified("m")
		s.Settled(2 * time.Second)
	}, func(_ *scene, c *broker.Config) { c.Queues[0].DefaultMessageTimeToLive = 5 * time.Second })
}
