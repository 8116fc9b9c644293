// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"errors"
	"time"

	"overdue/internal/broker"
	"overdue/internal/config"
	"overdue/internal/servicebus/entities"
)

// Nowhere is the source of an emulator whose only port we have taken.
type Nowhere struct{}

// NowhereToAsk says why nothing is known of entities then, and what to do.
const NowhereToAsk = "the port of the emulator's administration API is one of this process; set namespaceAdmin"

func (Nowhere) Read(context.Context, string) (entities.Info, error) {
	return entities.Info{}, errors.New(NowhereToAsk)
}

// embeddedSource asks the embedded broker directly, without a protocol.
type embeddedSource struct {
	ns *broker.Namespace
	// made is how a queue will be made that is not there; nil: none is.
	made *entities.Info
}

// NewEmbeddedSource is the source of b, for which a queue exists as soon as it is named if
// autoCreate says so.
func NewEmbeddedSource(b *broker.Broker, autoCreate bool) *embeddedSource {
	s := &embeddedSource{ns: b.Default()}
	if autoCreate {
		info := queueInfo(config.OnDemandQueue)
		s.made = &info
	}
	return s
}

func (s *embeddedSource) Read(_ context.Context, name string) (entities.Info, error) {
	if q, err := s.ns.QueueInfo(name); err == nil {
		info := queueInfo(q.Config)
		info.CreatedAt, info.UpdatedAt = q.CreatedAt, q.UpdatedAt
		return info, nil
	}
	t, err := s.ns.TopicInfo(name)
	if err != nil {
		if s.made != nil {
			return *s.made, nil
		}
		return entities.Info{}, entities.ErrNotFound
	}
	info := entities.Info{
		Kind: entities.Topic, DefaultMessageTimeToLive: limited(t.Config.DefaultMessageTimeToLive), AutoDeleteOnIdle: limited(t.Config.AutoDeleteOnIdle),
		RequiresDuplicateDetection: t.Config.RequiresDuplicateDetection, Partitioned: t.Config.EnablePartitioning,
		MaxMessageSize: int64(t.Config.MaxMessageSize), CreatedAt: t.CreatedAt, UpdatedAt: t.UpdatedAt,
	}
	subscriptions, err := s.ns.Subscriptions(name)
	if err != nil {
		return entities.Info{}, entities.ErrNotFound // deleted just now
	}
	for _, sub := range subscriptions {
		c := sub.Config
		info.Subscriptions = append(info.Subscriptions, entities.Subscription{
			Name: c.Name, CreatedAt: sub.CreatedAt, UpdatedAt: sub.UpdatedAt,
			DefaultMessageTimeToLive: limited(c.DefaultMessageTimeToLive), LockDuration: c.LockDuration, AutoDeleteOnIdle: limited(c.AutoDeleteOnIdle),
			RequiresSession: c.RequiresSession, DeadLetteringOnMessageExpiration: c.DeadLetteringOnMessageExpiration,
			ForwardTo: entities.Target(c.ForwardTo), ForwardDeadLetteredMessagesTo: entities.Target(c.ForwardDeadLetteredMessagesTo),
		})
	}
	return info, nil
}

func queueInfo(c broker.QueueConfig) entities.Info {
	return entities.Info{
		Kind: entities.Queue, DefaultMessageTimeToLive: limited(c.DefaultMessageTimeToLive), LockDuration: c.LockDuration, AutoDeleteOnIdle: limited(c.AutoDeleteOnIdle),
		RequiresSession: c.RequiresSession, RequiresDuplicateDetection: c.RequiresDuplicateDetection,
		DeadLetteringOnMessageExpiration: c.DeadLetteringOnMessageExpiration, Partitioned: c.EnablePartitioning,
		ForwardTo: entities.Target(c.ForwardTo), ForwardDeadLetteredMessagesTo: entities.Target(c.ForwardDeadLetteredMessagesTo),
		MaxMessageSize: int64(c.MaxMessageSize),
	}
}

// limited is a span that ends; what is longer than a century is 0, as in the configuration.
func limited(d time.Duration) time.Duration {
	if d > config.Unlimited {
		return 0
	}
	return d
}
