// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"overdue/internal/broker"
)

// changeLagMost bounds the lag of a message whose companion is due by a former default, or was lost
// with the monitor queue.
const changeLagMost = 15 * time.Second

// wantMissedOnce wants each of these messages to be dead-lettered at its deadline or within most
// after it, to be notified of once, and no other event.
func (s *scene) wantMissedOnce(due map[string]time.Time, most time.Duration) {
	s.Helper()
	notified := map[string]int{}
	for _, e := range s.Hook.Events() {
		notified[e.Subject]++
	}
	dead := map[string]time.Time{}
	for _, m := range s.Dead(workQueue) {
		dead[m.MessageID] = m.DeadLetteredTime
	}
	for id, deadline := range due {
		at, found := dead[id]
		switch lag := at.Sub(deadline); {
		case !found:
			s.Errorf("%s is not a dead letter", id)
		case lag < -time.Millisecond || lag > most:
			s.Errorf("%s was dead-lettered %v after its deadline, want 0 to %v", id, lag, most)
		}
		if notified[id] != 1 {
			s.Errorf("%s was notified of %d times, want once", id, notified[id])
		}
		delete(notified, id)
	}
	if len(notified) > 0 {
		s.Errorf("notified of others: %v", notified)
	}
}

// sendAtDefault sends n messages without a time to live of their own, and records their deadlines
// by the default that holds on the broker.
func (s *scene) sendAtDefault(due map[string]time.Time, name string, n int, holds time.Duration) {
	s.Helper()
	for i := range n {
		id := fmt.Sprint(name, "-", i)
		due[id] = time.Now().Add(holds)
		s.send(workQueue, id, "")
		time.Sleep(300 * time.Millisecond)
	}
}

// The default time to live is lowered, and senders learn of it later: the companions of what they
// send meanwhile are due by the old default.
func TestDefaultTimeToLiveThatIsLoweredBeforeSendersKnow(t *testing.T) {
	for _, slots := range []bool{true, false} {
		for _, monitors := range []int{1, 3} {
			t.Run(fmt.Sprint("slots ", slots, ", monitors ", monitors), func(t *testing.T) {
				inModes(t, func(s *scene, c *broker.Config) {
					s.slots, s.queueLife = slots, 10*time.Minute
					c.Queues[0].DefaultMessageTimeToLive = s.queueLife
				}, func(s *scene) {
					const lowered = 5 * time.Second
					s.MeasureClock()
					for range monitors {
						s.startMonitor()
					}
					due := map[string]time.Time{"first": time.Now().Add(time.Second)}
					s.send(workQueue, "first", ttl(time.Second))
					s.sendAtDefault(due, "before", 10, s.queueLife)
					s.setDefaultLife(lowered)
					due["own"] = time.Now().Add(time.Second)
					s.send(workQueue, "own", ttl(time.Second)) // the monitor learns with the first that is due
					s.sendAtDefault(due, "unaware", 60, lowered)
					s.queueLife = lowered
					s.sendAtDefault(due, "aware", 5, lowered)
					time.Sleep(11 * time.Minute)
					s.wantMissedOnce(due, changeLagMost)
					s.Settled(2 * time.Second)
				})
			})
		}
	}
}

// The queue is deleted and made again with a lower default.
func TestQueueThatIsRecreatedWithALowerDefault(t *testing.T) {
	for _, slots := range []bool{true, false} {
		t.Run(fmt.Sprint("slots ", slots), func(t *testing.T) {
			inModes(t, func(s *scene, c *broker.Config) {
				s.slots, s.queueLife = slots, 10*time.Minute
				c.Queues[0].DefaultMessageTimeToLive = s.queueLife
			}, func(s *scene) {
				const lowered = 5 * time.Second
				s.MeasureClock()
				s.startMonitor()
				s.send(workQueue, "met", ttl(time.Second))
				r, m := s.receive(workQueue)
				s.Must(r.CompleteMessage(s.Context(), m, nil))
				s.sendAtDefault(map[string]time.Time{}, "gone", 5, s.queueLife)
				s.recreateAs(workQueue, func(c *broker.QueueConfig) { c.DefaultMessageTimeToLive = lowered })
				due := map[string]time.Time{"own": time.Now().Add(time.Second)}
				s.send(workQueue, "own", ttl(time.Second))
				s.sendAtDefault(due, "unaware", 20, lowered)
				s.queueLife = lowered
				s.sendAtDefault(due, "aware", 5, lowered)
				time.Sleep(11 * time.Minute)
				s.wantMissedOnce(due, changeLagMost)
				s.Settled(2 * time.Second)
			})
		})
	}
}

// The monitor queue is deleted and made again, and all companions with it.
func TestMonitorQueueThatIsRecreated(t *testing.T) {
	for _, slots := range []bool{true, false} {
		for _, monitors := range []int{1, 3} {
			t.Run(fmt.Sprint("slots ", slots, ", monitors ", monitors), func(t *testing.T) {
				inModes(t, func(s *scene, _ *broker.Config) { s.slots = slots }, func(s *scene) {
					s.MeasureClock()
					for range monitors {
						s.startMonitor()
					}
					due := map[string]time.Time{}
					send := func(id string, life time.Duration) {
						due[id] = time.Now().Add(life)
						s.send(workQueue, id, ttl(life))
						time.Sleep(20 * time.Millisecond)
					}
					for i := range 10 {
						send(fmt.Sprint("before-", i), time.Second)
						send(fmt.Sprint("soon-", i), time.Duration(4000+100*i)*time.Millisecond)
						send(fmt.Sprint("later-", i), time.Duration(30+i)*time.Second)
						send(fmt.Sprint("capped-", i), 5*time.Minute)
					}
					time.Sleep(2 * time.Second)
					s.recreateAs(monitorQueue, func(*broker.QueueConfig) {})
					for i := range 10 {
						send(fmt.Sprint("after-", i), time.Duration(20+i)*time.Second)
					}
					time.Sleep(6 * time.Minute)
					s.wantMissedOnce(due, changeLagMost)
					s.Settled(2 * time.Second)
				})
			})
		}
	}
}

// A subscription gets a default time to live below that of its topic.
func TestDefaultOfASubscriptionThatIsLoweredBeforeSendersKnow(t *testing.T) {
	inModes(t, func(s *scene, c *broker.Config) {
		withTopic(subscription("a"), subscription("b"))(s, c)
		s.queueLife = 10 * time.Minute
		c.Topics[0].DefaultMessageTimeToLive = s.queueLife
	}, func(s *scene) {
		const lowered = 5 * time.Second
		s.MeasureClock()
		s.startMonitor()
		s.send(topic, "before", ttl(time.Second))
		time.Sleep(2 * time.Second)
		ns := s.Namespace.Broker.Default()
		info, err := ns.SubscriptionInfo(topic, "b")
		s.Must(err)
		info.Config.DefaultMessageTimeToLive = lowered
		_, err = ns.UpdateSubscription(topic, info.Config)
		s.Must(err)
		s.send(topic, "own", ttl(time.Second))
		want := map[string]time.Duration{"before of a": time.Second, "before of b": time.Second, "own of a": time.Second, "own of b": time.Second}
		for i := range 20 {
			id := fmt.Sprint("unaware-", i)
			s.send(topic, id, "")
			want[id+" of a"], want[id+" of b"] = s.queueLife, lowered
			time.Sleep(300 * time.Millisecond)
		}
		time.Sleep(11 * time.Minute)
		for _, e := range s.Hook.Events() {
			name := e.Subject + " of " + e.Data.Subscription
			life, ok := want[name]
			if lag := e.Data.DeadLetteredTime.Sub(e.Data.EnqueuedTime.Add(life)); !ok || lag < 0 || lag > changeLagMost {
				s.Errorf("%s was notified of, %v after its deadline, want that once, 0 to %v", name, lag, changeLagMost)
			}
			delete(want, name)
		}
		if len(want) > 0 {
			s.Errorf("not notified of %v", want)
		}
		s.Settled(2 * time.Second)
	})
}

// After a change the monitor reads the messages that were enqueued since, however long the queue
// is.
func TestReadingAfterAChangeDoesNotDependOnTheLengthOfTheQueue(t *testing.T) {
	play(t, func(s *scene) {
		s.queueLife = 24 * time.Hour
		s.MeasureClock()
		s.startMonitor()
		for range 20 {
			s.sendLives(workQueue, slices.Repeat([]time.Duration{12 * time.Hour}, 250))
		}
		s.send(workQueue, "before", ttl(time.Second))
		time.Sleep(10 * time.Second)
		s.setDefaultLife(time.Hour)
		s.send(workQueue, "own", ttl(time.Second))
		time.Sleep(5 * time.Second)
		peeks, all := s.Operations("peek"), s.Operations("")
		time.Sleep(3 * time.Minute)
		// A dozen passes, each with two peeks at the queue and two at the dead letters, and three
		// operations for the note.
		if peeks, all = s.Operations("peek")-peeks, s.Operations("")-all; peeks > 60 || all > 110 {
			s.Errorf("the passes took %v operations, %v of them peeks, want about 90 and 50", all, peeks)
		}
	}, func(_ *scene, c *broker.Config) { c.Queues[0].DefaultMessageTimeToLive = 24 * time.Hour })
}

// recreateAs deletes a queue and makes it again with changed settings.
func (s *scene) recreateAs(name string, change func(*broker.QueueConfig)) {
	s.Helper()
	ns := s.Namespace.Broker.Default()
	info, err := ns.QueueInfo(name)
	s.Must(err)
	s.Must(ns.DeleteQueue(name))
	change(&info.Config)
	_, err = ns.CreateQueue(info.Config)
	s.Must(err)
	if sender := s.senders[name]; sender != nil { // its link went with the queue
		_ = sender.Close(s.Context())
		delete(s.senders, name)
	}
}
