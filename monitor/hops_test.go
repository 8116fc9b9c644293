// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/servicebus/entities"
)

// A message is followed as often as Service Bus forwards one, which is four times, and through a
// topic on its way:
// https://learn.microsoft.com/azure/service-bus-messaging/service-bus-auto-forwarding.
func TestMessagesAreFollowedOverFourHops(t *testing.T) {
	const hops = 4
	inModes(t, func(_ *scene, c *broker.Config) {
		c.Queues[0].ForwardTo = "hop-1"
		for i := range hops {
			q := broker.QueueConfig{Name: fmt.Sprint("hop-", i+1), DeadLetteringOnMessageExpiration: true}
			if i+1 < hops {
				q.ForwardTo = fmt.Sprint("hop-", i+2)
			}
			c.Queues = append(c.Queues, q)
		}
	}, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		s.send(workQueue, "m", ttl(3*time.Second))
		time.Sleep(8 * time.Second)
		s.wantDead(fmt.Sprint("hop-", hops), "TTLExpiredException", 3*time.Second, time.Second, "m")
		s.wantNotified("m")
		s.Settled(time.Second)
	})
}

// A subscription that is made after the subscriptions of its topic were last read, and before
// the message, has the message, and its deadline.
func TestASubscriptionThatIsNewerThanTheListIsSeen(t *testing.T) {
	play(t, func(s *scene) {
		source := &countingSource{s: s}
		s.remembers = entities.New(entities.Config{Source: source})
		s.Cleanup(s.remembers.Close)
		s.MeasureClock()
		s.startMonitor()
		s.send(topic, "before", ttl(3*time.Second))
		time.Sleep(10 * time.Second)
		_, err := s.Namespace.Broker.Default().CreateSubscription(topic, broker.SubscriptionConfig{Name: "two", DeadLetteringOnMessageExpiration: true})
		s.Must(err)
		time.Sleep(time.Second)
		s.send(topic, "after", ttl(3*time.Second))
		time.Sleep(10 * time.Second)
		if n := source.reads.Load(); n != 2 {
			s.Errorf("entities were read %d times, want twice: for each of the messages", n)
		}
		s.wantDead(of("two"), "TTLExpiredException", 3*time.Second, time.Second, "after")
		got := notifiedBySubscription(s)
		if fmt.Sprint(got) != "map[one:[after before] two:[after]]" {
			s.Errorf("notified of %v, want of both in one and of the later in two", got)
		}
		s.Settled(time.Second)
	}, withTopic(subscription("one")))
}

// countingSource is the administration of the scene's namespace.
type countingSource struct {
	s     *scene
	reads atomic.Int64
}

func (c *countingSource) Read(_ context.Context, name string) (entities.Info, error) {
	c.reads.Add(1)
	return c.s.Describe(name)
}
