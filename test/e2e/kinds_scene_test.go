// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/servicebus/entities"
)

// modes are the ways in which a broker may expire.
var modes = []struct {
	name   string
	expiry queue.Expiry
}{{"lazy", queue.Lazy}, {"lazy-head", queue.LazyHead}, {"eager", queue.Eager}}

// inModes plays a scene in each of them. make makes its entities.
func inModes(t *testing.T, make func(*scene, *broker.Config), act func(*scene)) {
	for i := range modes {
		inMode(t, i, make, act)
	}
}

func inMode(t *testing.T, i int, make func(*scene, *broker.Config), act func(*scene)) {
	m := modes[i]
	t.Run(m.name, func(t *testing.T) {
		play(t, act, func(s *scene, c *broker.Config) {
			c.Expiry, s.expiry = m.expiry, m.expiry
			make(s, c)
		})
	})
}

// describe is what the monitor asks how entities were made.
func (s *scene) describe(_ context.Context, name string, _ time.Time) (entities.Info, error) {
	return s.made(name)
}

// made says how entities were made, as the administration of a namespace does.
func (s *scene) made(name string) (entities.Info, error) {
	ns := s.ns.Broker.Default()
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

// operations is what the monitors have asked of the broker so far, by the name of the operation;
// "" for all.
func (s *scene) operations(name string) (n float64) {
	s.Helper()
	for _, registry := range s.metrics {
		families, err := registry.Gather()
		if err != nil {
			s.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if l := m.GetLabel(); f.GetName() == "overdue_broker_operations_total" && (name == "" || l[0].GetValue() == name) {
					n += m.GetCounter().GetValue()
				}
			}
		}
	}
	return n
}

// verdicts counts the verdicts of one kind about an entity.
func (s *scene) verdicts(entity, verdict string) (n float64) {
	s.Helper()
	for _, registry := range s.metrics {
		families, err := registry.Gather()
		if err != nil {
			s.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if l := m.GetLabel(); f.GetName() == "overdue_deadlines_total" && l[0].GetValue() == entity && l[1].GetValue() == verdict {
					n += m.GetCounter().GetValue()
				}
			}
		}
	}
	return n
}

// session puts a message into a session.
func session(id string) string { return `"SessionId":"` + id + `"` }

// sized is n, or few while the race detector watches.
func sized(n, few int) int {
	if raced {
		return few
	}
	return n
}
