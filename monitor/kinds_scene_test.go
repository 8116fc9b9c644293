// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/servicebus/entities"
	"overdue/internal/testing/testseed"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/google/go-cmp/cmp"
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

// inModeOfTurn is inModes where seeds are random, and otherwise plays one of the modes: for
// scenes of which there are so many that each mode has its turn.
func inModeOfTurn(t *testing.T, turn int, make func(*scene, *broker.Config), act func(*scene)) {
	if testseed.Chosen() {
		inModes(t, make, act)
	} else {
		inMode(t, turn%len(modes), make, act)
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
func (s *scene) describe(ctx context.Context, name string, since time.Time) (entities.Info, error) {
	if s.remembers != nil {
		return s.remembers.LookupSince(ctx, name, since)
	}
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

// wantDead wants these messages, in this order of their numbers, to be the dead letters at a
// path, for that reason, none of them early and none later than late by its deadline.
func (s *scene) wantDead(path, reason string, within, late time.Duration, ids ...string) {
	s.Helper()
	var got []string
	for _, m := range s.dead(path) {
		got = append(got, m.MessageID)
		lag := m.DeadLetteredTime.Sub(m.EnqueuedTime.Add(within))
		if m.DeadLetterReason != reason || lag < 0 || lag > late {
			s.Errorf("%s: reason %q, dead-lettered %v after its deadline; want %s and 0 to %v", m.MessageID, m.DeadLetterReason, lag, reason, late)
		}
	}
	if diff := cmp.Diff(ids, got); diff != "" {
		s.Errorf("dead letters of %s (-want +got):\n%s", path, diff)
	}
}

// wantTold wants events about just these subjects, in any order.
func (s *scene) wantNotified(ids ...string) {
	s.Helper()
	slices.Sort(ids)
	if diff := cmp.Diff(ids, s.hook.Subjects()); diff != "" {
		s.Errorf("notified of (-want +got):\n%s", diff)
	}
}

// session puts a message into a session.
func session(id string) string { return `"SessionId":"` + id + `"` }

// accept takes a session as a consumer would.
func (s *scene) accept(entity, id string) *azservicebus.SessionReceiver {
	s.Helper()
	r, err := s.client.AcceptSessionForQueue(s.Context(), entity, id, nil)
	if err != nil {
		s.Fatalf("accept session %q of %s: %v", id, entity, err)
	}
	s.Cleanup(func() { _ = r.Close(context.Background()) })
	return r
}

// defers receives a message and sets it aside.
func (s *scene) defers(queue string) (number int64) {
	s.Helper()
	r, m := s.receive(queue)
	if err := r.DeferMessage(s.Context(), m, nil); err != nil {
		s.Fatal(err)
	}
	if err := r.Close(s.Context()); err != nil {
		s.Fatal(err)
	}
	return *m.SequenceNumber
}

// sized is n, or few while the race detector watches.
func sized(n, few int) int {
	if raced {
		return few
	}
	return n
}
