// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"fmt"
	"testing"
	"time"

	"overdue/internal/broker"
)

// A message that is sent to a queue that forwards is watched where it ends. It ends in a queue, in
// one with sessions behind another hop, or in the subscriptions of a topic.
func TestForwardedMessagesAreFollowed(t *testing.T) {
	end := broker.QueueConfig{Name: "end", DeadLetteringOnMessageExpiration: true}
	sessions := end
	sessions.RequiresSession = true
	for name, entities := range map[string]func(*broker.Config){
		"queue": func(c *broker.Config) {
			c.Queues[0].ForwardTo = "end"
			c.Queues = append(c.Queues, end)
		},
		"two hops, sessions": func(c *broker.Config) {
			c.Queues[0].ForwardTo = "middle"
			c.Queues = append(c.Queues, broker.QueueConfig{Name: "middle", ForwardTo: "end"}, sessions)
		},
		"topic": func(c *broker.Config) {
			c.Queues[0].ForwardTo = topic
			forwarding := subscription("on")
			forwarding.ForwardTo, forwarding.DeadLetteringOnMessageExpiration = "end", true
			c.Topics = []broker.TopicSetup{{TopicConfig: broker.TopicConfig{Name: topic}, Subscriptions: []broker.SubscriptionSetup{forwarding}}}
			c.Queues = append(c.Queues, end)
		},
	} {
		for _, stamp := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, stamp %v", name, stamp), func(t *testing.T) {
				inModes(t, func(_ *scene, c *broker.Config) { entities(c) }, func(s *scene) {
					s.stamp = stamp
					s.MeasureClock()
					s.startMonitor()
					s.send(workQueue, "a", session("x"), "Overdue-Within", `"3s"`)
					s.send(workQueue, "b", session("y"), "Overdue-Within", `"3s"`)
					time.Sleep(8 * time.Second)
					reason := "TTLExpiredException"
					if !stamp {
						reason = "DeadlineExceeded"
					}
					s.wantDead("end", reason, 3*time.Second, time.Second, "a", "b")
					s.wantNotified("a", "b")
					for _, e := range s.Hook.Events() {
						if e.Data.Entity != "end" {
							s.Errorf("notified of %s in %q, want it where the message was missed", e.Subject, e.Data.Entity)
						}
					}
					s.Settled(time.Second)
				})
			})
		}
	}
}

// One that is received in time where it ends is met, and counted there. A chain that leads to
// nothing that can be checked at is not counted as met.
func TestForwardedMessagesAreCountedOnce(t *testing.T) {
	inModes(t, func(_ *scene, c *broker.Config) {
		c.Queues[0].ForwardTo = "end"
		c.Queues = append(c.Queues, broker.QueueConfig{Name: "end", DeadLetteringOnMessageExpiration: true})
	}, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		s.send(workQueue, "m", ttl(3*time.Second))
		r, m := s.receive("end")
		if err := r.CompleteMessage(s.Context(), m, nil); err != nil {
			s.Fatal(err)
		}
		if err := r.Close(s.Context()); err != nil {
			s.Fatal(err)
		}
		s.send(workQueue, "lost", ttl(3*time.Second))
		if err := s.Namespace.Broker.Default().DeleteQueue("end"); err != nil {
			s.Fatal(err)
		}
		time.Sleep(65 * time.Minute)
		s.wantNotified()
		if met, unknown := s.Verdicts(workQueue, "met")+s.Verdicts("end", "met"), s.Verdicts("end", "unknown"); met != 0 || unknown != 2 {
			s.Errorf("%v met and %v unknown, want none and both: the queue is gone", met, unknown)
		}
		s.Settled(time.Second)
	})
}

// The entity that it forwards to takes nothing. Nobody has received the message, which is a dead
// letter of the queue, or of the entity to which the queue forwards its dead letters.
func TestMessageThatCannotBeForwarded(t *testing.T) {
	for name, deadTo := range map[string]string{"dead letters stay": "", "dead letters are forwarded": "central"} {
		t.Run(name, func(t *testing.T) {
			inModes(t, func(_ *scene, c *broker.Config) {
				c.Queues[0].ForwardTo, c.Queues[0].ForwardDeadLetteredMessagesTo = "end", deadTo
				c.Queues = append(c.Queues, broker.QueueConfig{Name: "central", DeadLetteringOnMessageExpiration: true},
					broker.QueueConfig{Name: "end", DeadLetteringOnMessageExpiration: true, Status: broker.Disabled})
			}, func(s *scene) {
				s.MeasureClock()
				s.startMonitor()
				s.send(workQueue, "m", ttl(3*time.Second))
				time.Sleep(8 * time.Second)
				if stays := s.Queue(workQueue).Counts().DeadLetter == 1; stays != (deadTo == "") {
					s.Errorf("the dead letter stays: %v, want that only where dead letters are not forwarded", stays)
				}
				s.wantNotified("m")
				s.Settled(time.Second)
			})
		})
	}
}
