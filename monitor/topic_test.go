// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/testing/bubble"

	"github.com/google/go-cmp/cmp"
)

// withTopic makes a topic with these subscriptions, all of which dead-letter what expires, and
// has it monitored.
func withTopic(subscriptions ...broker.SubscriptionSetup) func(*scene, *broker.Config) {
	return func(s *scene, c *broker.Config) {
		c.Topics = bubble.Topics(subscriptions...)
		s.monitored[topic] = true
	}
}

// notified are the subjects of the events about each subscription, sorted.
func notifiedBySubscription(s *scene) map[string][]string {
	got := map[string][]string{}
	for _, e := range s.Hook.Events() {
		if want := "sb://overdue.test/" + of(e.Data.Subscription); e.Source != want || e.Data.Entity != topic {
			s.Errorf("an event from %q about %q, want %q about %q", e.Source, e.Data.Entity, want, topic)
		}
		got[e.Data.Subscription] = append(got[e.Data.Subscription], e.Subject)
	}
	for _, ids := range got {
		slices.Sort(ids)
	}
	return got
}

// receiveFrom takes and completes n messages of a subscription.
func (s *scene) receiveFrom(name string, n int) {
	s.Helper()
	r, err := s.Client.NewReceiverForSubscription(topic, name, nil)
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = r.Close(context.Background()) }()
	for n > 0 {
		ms, err := r.ReceiveMessages(s.Context(), n, nil)
		if err != nil {
			s.Fatal(err)
		}
		for _, m := range ms {
			if err := r.CompleteMessage(s.Context(), m, nil); err != nil {
				s.Fatal(err)
			}
		}
		n -= len(ms)
	}
}

// Each subscription has copies of its own: one is received in time, one is not, one requires
// sessions, and one does not take the message at all.
func TestMissedDeadlinesOfATopic(t *testing.T) {
	for _, stamp := range []bool{true, false} {
		t.Run(fmt.Sprint("stamp ", stamp), func(t *testing.T) {
			inModes(t, withTopic(subscription("served"), subscription("offline"),
				subscription("sessions", func(c *broker.SubscriptionSetup) { c.RequiresSession = true }),
				subscription("choosy", func(c *broker.SubscriptionSetup) {
					c.Rules = []broker.RuleConfig{{Name: "none", Filter: broker.Filter{False: true}}}
				}),
			), func(s *scene) {
				s.stamp = stamp
				s.MeasureClock()
				s.startMonitor()
				var ids []string
				for i := range 10 {
					id := fmt.Sprint("m-", i)
					ids = append(ids, id)
					s.send(topic, id, session(fmt.Sprint(i%2)), "Overdue-Within", `"3s"`)
				}
				s.receiveFrom("served", 10)
				time.Sleep(8 * time.Second)
				reason := "TTLExpiredException"
				if !stamp {
					reason = "DeadlineExceeded"
				}
				s.wantDead(of("offline"), reason, 3*time.Second, time.Second, ids...)
				s.wantDead(of("sessions"), reason, 3*time.Second, time.Second, ids...)
				for _, name := range []string{"served", "choosy"} {
					if n := len(s.Dead(of(name))); n != 0 {
						s.Errorf("%d dead letters of %s, want none", n, name)
					}
				}
				if diff := cmp.Diff(map[string][]string{"offline": ids, "sessions": ids}, notifiedBySubscription(s)); diff != "" {
					s.Errorf("notified (-want +got):\n%s", diff)
				}
				s.Settled(time.Second)
			})
		})
	}
}

// The shortest of three times to live counts in each subscription: the message's, the topic's
// and its own.
func TestTimesToLiveOfTopicAndSubscription(t *testing.T) {
	make := withTopic(subscription("long"), subscription("short", func(c *broker.SubscriptionSetup) { c.DefaultMessageTimeToLive = 4 * time.Second }))
	inModes(t, func(s *scene, c *broker.Config) {
		make(s, c)
		c.Topics[0].DefaultMessageTimeToLive = 9 * time.Second
		s.subscriptionLife = 4 * time.Second
	}, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		s.send(topic, "capped", ttl(time.Hour))
		s.send(topic, "default", "")
		s.send(topic, "own", ttl(2*time.Second))
		time.Sleep(15 * time.Second)
		for name, cap := range map[string]time.Duration{"long": 9 * time.Second, "short": 4 * time.Second} {
			for _, m := range s.Dead(of(name)) {
				want := cap
				if m.MessageID == "own" {
					want = 2 * time.Second
				}
				if lag := m.DeadLetteredTime.Sub(m.EnqueuedTime.Add(want)); lag < 0 || lag > time.Second {
					s.Errorf("%s of %s was dead-lettered %v after its deadline, want 0 to 1s", m.MessageID, name, lag)
				}
			}
		}
		all := []string{"capped", "default", "own"}
		if diff := cmp.Diff(map[string][]string{"long": all, "short": all}, notifiedBySubscription(s)); diff != "" {
			s.Errorf("notified (-want +got):\n%s", diff)
		}
		s.Settled(time.Second)
	})
}

// A subscription that comes later has the messages that are sent after that, and their
// deadlines. One that goes takes its messages with it, and holds up nobody.
func TestSubscriptionsThatComeAndGo(t *testing.T) {
	inModes(t, withTopic(subscription("first"), subscription("doomed")), func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		s.send(topic, "before", ttl(5*time.Second))
		_, err := s.Namespace.Broker.Default().CreateSubscription(topic, broker.SubscriptionConfig{Name: "second", DeadLetteringOnMessageExpiration: true})
		if err != nil {
			s.Fatal(err)
		}
		s.send(topic, "after", ttl(5*time.Second))
		if err := s.Namespace.Broker.Default().DeleteSubscription(topic, "doomed"); err != nil {
			s.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		want := map[string][]string{"first": {"after", "before"}, "second": {"after"}}
		if diff := cmp.Diff(want, notifiedBySubscription(s)); diff != "" {
			s.Errorf("notified (-want +got):\n%s", diff)
		}
		s.Settled(time.Second)
	})
}

// One subscription's consumer holds its copy over the deadline, and over a change of monitors;
// the other copy is notified once.
func TestCopyThatIsLockedOverAChangeOfMonitors(t *testing.T) {
	inModes(t, withTopic(subscription("held"), subscription("offline")), func(s *scene) {
		s.MeasureClock()
		stop := s.startMonitor()
		s.send(topic, "m", ttl(3*time.Second))
		r, err := s.Client.NewReceiverForSubscription(topic, "held", nil)
		if err != nil {
			s.Fatal(err)
		}
		defer func() { _ = r.Close(s.Context()) }()
		ms, err := r.ReceiveMessages(s.Context(), 1, nil)
		if err != nil || len(ms) != 1 {
			s.Fatalf("receive = %d messages, %v", len(ms), err)
		}
		time.Sleep(10 * time.Second)
		stop()
		s.startMonitor()
		time.Sleep(10 * time.Second)
		if diff := cmp.Diff(map[string][]string{"offline": {"m"}}, notifiedBySubscription(s)); diff != "" {
			s.Errorf("notified while one copy is held (-want +got):\n%s", diff)
		}
		if err := r.AbandonMessage(s.Context(), ms[0], nil); err != nil {
			s.Fatal(err)
		}
		time.Sleep(1500 * time.Millisecond)
		if diff := cmp.Diff(map[string][]string{"held": {"m"}, "offline": {"m"}}, notifiedBySubscription(s)); diff != "" {
			s.Errorf("notified after it was given back (-want +got):\n%s", diff)
		}
		s.Settled(time.Second)
	})
}

// More subscriptions than a companion is handed to directly.
func TestTopicWithManySubscriptions(t *testing.T) {
	var many []broker.SubscriptionSetup
	for i := range 50 {
		many = append(many, subscription(fmt.Sprint("s", i)))
	}
	play(t, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		s.send(topic, "a", ttl(2*time.Second))
		s.send(topic, "b", ttl(2*time.Second))
		time.Sleep(10 * time.Second)
		got := notifiedBySubscription(s)
		for i := range many {
			if name := fmt.Sprint("s", i); !slices.Equal(got[name], []string{"a", "b"}) {
				s.Errorf("notified of %v in %s, want a and b", got[name], name)
			}
		}
		s.Settled(time.Second)
	}, withTopic(many...))
}

// A scheduled message waits at the topic; its copies come to be when it is activated, and their
// clocks start then.
func TestScheduledMessageOfATopic(t *testing.T) {
	inModes(t, withTopic(subscription("served"), subscription("offline")), func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		at := time.Now().Add(30 * time.Second)
		s.send(topic, "m", ttl(2*time.Second)+fmt.Sprintf(`,"ScheduledEnqueueTimeUtc":%q`, at.UTC().Format(http.TimeFormat)))
		time.Sleep(31 * time.Second)
		s.receiveFrom("served", 1)
		if n := len(s.Waiting(of("offline"))); n != 1 {
			s.Errorf("%d copies wait a second after the activation, want 1", n)
		}
		time.Sleep(4 * time.Second)
		s.wantDead(of("offline"), "TTLExpiredException", 2*time.Second, time.Second, "m")
		if diff := cmp.Diff(map[string][]string{"offline": {"m"}}, notifiedBySubscription(s)); diff != "" {
			s.Errorf("notified (-want +got):\n%s", diff)
		}
	})
}
