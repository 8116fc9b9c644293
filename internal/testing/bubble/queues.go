// SPDX-License-Identifier: Apache-2.0

package bubble

import (
	"fmt"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/google/go-cmp/cmp"

	"overdue/alert"
	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/servicebus/entities"
	"overdue/internal/testing/brokertest"
)

// Queue returns the engine's queue, for checks without the protocol.
func (s *Scene) Queue(name string) *queue.Queue {
	s.Helper()
	q, ok := s.Namespace.Broker.Queue(name)
	if !ok {
		s.Fatalf("the broker has no queue %s", name)
	}
	return q
}

// Waiting are the messages of a queue.
func (s *Scene) Waiting(name string) []queue.View {
	return brokertest.Seen(s.Queue(name).Peek(nil, 0, 1<<20))
}

// Dead are the messages of its dead-letter queue.
func (s *Scene) Dead(name string) []queue.View {
	return brokertest.Seen(s.Queue(name).DeadLetterQueue().Peek(nil, 0, 1<<20))
}

// Lags are how long after their deadlines the dead letters of a queue were moved, in order. All of
// them must have expired, none of them early.
func (s *Scene) Lags(name string) []time.Duration {
	s.Helper()
	var lags []time.Duration
	for _, m := range s.Dead(name) {
		if m.DeadLetterReason != "TTLExpiredException" {
			s.Errorf("%s: dead-letter reason %q, want TTLExpiredException", m.MessageID, m.DeadLetterReason)
		}
		lag := m.DeadLetteredTime.Sub(m.ExpiresAt)
		if lag < 0 {
			s.Errorf("%s was dead-lettered %v early", m.MessageID, -lag)
		}
		lags = append(lags, lag)
	}
	slices.Sort(lags)
	return lags
}

// TTL is the broker property that states a time to live.
func TTL(d time.Duration) string { return fmt.Sprintf(`"TimeToLive":%g`, d.Seconds()) }

// Lives is a message with that time to live.
func Lives(d time.Duration) azservicebus.Message { return azservicebus.Message{TimeToLive: &d} }

// SendDirectly sends a message to the broker, past all endpoints. An id of "" is left out.
func (s *Scene) SendDirectly(to, id string, m azservicebus.Message) {
	s.Helper()
	sender := s.direct[to]
	if sender == nil {
		var err error
		sender, err = s.Client.NewSender(to, nil)
		s.Must(err)
		if s.direct == nil {
			s.direct = map[string]*azservicebus.Sender{}
		}
		s.direct[to] = sender
	}
	if id != "" {
		m.MessageID = &id
	}
	m.Body = []byte("body of " + id)
	s.Must(sender.SendMessage(s.Context(), &m, nil))
}

// CloseDirect closes the sender of SendDirectly. The next message opens another.
func (s *Scene) CloseDirect(to string) {
	s.Helper()
	_ = s.direct[to].Close(s.Context()) // its queue may be gone
	delete(s.direct, to)
}

// Topic is the name of the topic of WithTopic.
const Topic = "events"

// Topics is a topic with these subscriptions, all of which dead-letter what expires.
func Topics(subscriptions ...broker.SubscriptionSetup) []broker.TopicSetup {
	subscriptions = slices.Clone(subscriptions)
	for i := range subscriptions {
		subscriptions[i].DeadLetteringOnMessageExpiration = true
	}
	return []broker.TopicSetup{{TopicConfig: broker.TopicConfig{Name: Topic}, Subscriptions: subscriptions}}
}

// Subscription is a subscription for Topics.
func Subscription(name string, change ...func(*broker.SubscriptionSetup)) broker.SubscriptionSetup {
	s := broker.SubscriptionSetup{SubscriptionConfig: broker.SubscriptionConfig{Name: name}}
	for _, f := range change {
		f(&s)
	}
	return s
}

// SubscriptionPath is the path of a subscription of the topic.
func SubscriptionPath(name string) string { return Topic + "/Subscriptions/" + name }

// Describe says how an entity was created, as the administration of a namespace does.
func (s *Scene) Describe(name string) (entities.Info, error) {
	ns := s.Namespace.Broker.Default()
	if q, err := ns.QueueInfo(name); err == nil {
		c := q.Config
		return entities.Info{
			Kind: entities.Queue, CreatedAt: q.CreatedAt, UpdatedAt: q.UpdatedAt, DefaultMessageTimeToLive: c.DefaultMessageTimeToLive, LockDuration: c.LockDuration,
			RequiresSession: c.RequiresSession, DeadLetteringOnMessageExpiration: c.DeadLetteringOnMessageExpiration, AutoDeleteOnIdle: c.AutoDeleteOnIdle,
			Partitioned: c.EnablePartitioning, ForwardTo: c.ForwardTo, ForwardDeadLetteredMessagesTo: c.ForwardDeadLetteredMessagesTo,
		}, nil
	}
	topic, err := ns.TopicInfo(name)
	if err != nil {
		return entities.Info{}, entities.ErrNotFound
	}
	info := entities.Info{Kind: entities.Topic, CreatedAt: topic.CreatedAt, UpdatedAt: topic.UpdatedAt, DefaultMessageTimeToLive: topic.Config.DefaultMessageTimeToLive, Partitioned: topic.Config.EnablePartitioning}
	subscriptions, err := ns.Subscriptions(name)
	for _, sub := range subscriptions {
		c := sub.Config
		info.Subscriptions = append(info.Subscriptions, entities.Subscription{
			Name: c.Name, CreatedAt: sub.CreatedAt, UpdatedAt: sub.UpdatedAt, DefaultMessageTimeToLive: c.DefaultMessageTimeToLive, LockDuration: c.LockDuration,
			RequiresSession: c.RequiresSession, DeadLetteringOnMessageExpiration: c.DeadLetteringOnMessageExpiration,
			ForwardTo: c.ForwardTo, ForwardDeadLetteredMessagesTo: c.ForwardDeadLetteredMessagesTo,
		})
	}
	return info, err
}

// count adds up the counters of that name whose labels match, over all processes. match gets the
// values of the labels, in the order of their names.
func (s *Scene) count(name string, match func(labels []string) bool) (n float64) {
	s.Helper()
	for _, registry := range s.Registries {
		families, err := registry.Gather()
		s.Must(err)
		for _, f := range families {
			for _, m := range f.GetMetric() {
				var labels []string
				for _, l := range m.GetLabel() {
					labels = append(labels, l.GetValue())
				}
				if f.GetName() == name && match(labels) {
					n += m.GetCounter().GetValue()
				}
			}
		}
	}
	return n
}

// Operations counts the operations of that name that the processes have asked of the broker so far;
// "" for all.
func (s *Scene) Operations(name string) float64 {
	s.Helper()
	return s.count("overdue_broker_operations_total", func(l []string) bool { return name == "" || l[0] == name })
}

// Verdicts counts the verdicts of one kind about an entity.
func (s *Scene) Verdicts(entity, verdict string) float64 {
	s.Helper()
	return s.count("overdue_deadlines_total", func(l []string) bool { return l[0] == entity && l[1] == verdict })
}

// Adopted counts the messages that adopt passes gave a companion.
func (s *Scene) Adopted() float64 {
	s.Helper()
	return s.count("overdue_adopted_total", func([]string) bool { return true })
}

// Muted counts the events of an entity that no sink got because it was muted.
func (s *Scene) Muted(entity string) float64 {
	s.Helper()
	return s.count("overdue_muted_events_total", func(l []string) bool { return l[0] == entity })
}

// AdoptPassed waits until only the note of the next adopt pass of each entity is left.
func (s *Scene) AdoptPassed(within time.Duration) {
	s.Helper()
	for end := time.Now().Add(within); ; time.Sleep(50 * time.Millisecond) {
		c := s.CompanionsKept()
		if c.Leased == 0 && int(c.Waiting) == len(s.Adopt) && c.Dead == 0 {
			return
		}
		if time.Now().After(end) {
			s.Fatalf("there are %+v companions after %v, want %d adopt notes", c, within, len(s.Adopt))
		}
	}
}

// WantEvents wants these and no other events, as "type subject" without the prefix of all types, in
// any order. Each must come after the deadline that it is about, and within a second.
func (s *Scene) WantEvents(want ...string) {
	s.Helper()
	var got []string
	for _, e := range s.Hook.Events() {
		name := e.Type[len("overdue.deadline."):] + " " + e.Subject
		if sub := e.Data.Subscription; sub != "" {
			name += " of " + sub
		}
		got = append(got, name)
		kind := "received"
		if e.Type == alert.TypeIncomplete {
			kind = "completed"
		}
		if e.Data.DeadlineKind != kind || e.Data.LagMs < 0 || e.Data.LagMs > 1000 || e.Data.SequenceNumber == 0 || e.Data.EnqueuedTime.IsZero() {
			s.Errorf("%s: %+v; want a deadline to be %s and a lag of 0 to 1000 ms", name, e.Data, kind)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		s.Errorf("notified of (-want +got):\n%s", diff)
	}
}
