// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"fmt"
	"slices"
	"time"

	"overdue/internal/broker/queue"
	"overdue/internal/servicebus/address"
)

// SubscriptionInfo is a subscription as it stands.
type SubscriptionInfo struct {
	Topic                            string
	Config                           SubscriptionConfig // defaults filled in
	CreatedAt, UpdatedAt, AccessedAt time.Time          // as in QueueInfo
	Counts                           queue.Counts
}

// CreateSubscription makes a subscription with these rules; without any it gets
// DefaultRuleName, which matches everything. Errors: ErrEntityNotFound for the
// topic, and those of CreateQueue.
func (n *Namespace) CreateSubscription(topic string, cfg SubscriptionConfig, rules ...RuleConfig) (SubscriptionInfo, error) {
	e, err := n.entities.createNamed(func() (*Entity, error) { return n.entities.createSubscriptionLocked(topic, cfg, rules) })
	return infoOf(e, err, (*Entity).subscriptionInfo)
}

func (es *entities) createSubscriptionLocked(topic string, cfg SubscriptionConfig, rules []RuleConfig) (*Entity, error) {
	if err := cfg.checkNew(topic); err != nil {
		return nil, err
	}
	compiled, err := newRules(rules, es.ns.Now().UTC())
	if err != nil {
		return nil, err
	}
	t := es.byKey[key(topic)]
	if t == nil || t.kind != KindTopic {
		return nil, fmt.Errorf("%w: topic %.300s", ErrEntityNotFound, topic)
	}
	if err := t.hasRoomLocked(nil, compiled); err != nil {
		return nil, err
	}
	path := address.SubscriptionPath(t.path, cfg.Name)
	e, err := es.addLocked(KindSubscription, path, t, settings{subscription: cfg.withDefaults()}, compiled)
	if err != nil {
		return nil, err
	}
	t.touch()
	return e, nil
}

// setUpSubscriptionLocked makes a subscription of the configuration, unless it is there.
func (es *entities) setUpSubscriptionLocked(topic string, s SubscriptionSetup) error {
	if e := es.loadedLocked(address.SubscriptionPath(topic, s.Name)); e != nil {
		rules, err := newRules(s.Rules, es.ns.Now().UTC())
		es.compareLocked(e, KindSubscription, &settings{subscription: s.withDefaults()}, rules)
		return err
	}
	_, err := es.createSubscriptionLocked(topic, s.SubscriptionConfig, s.Rules)
	return err
}

// newRules makes the rules of a new subscription.
func newRules(cfgs []RuleConfig, now time.Time) ([]*rule, error) {
	if len(cfgs) == 0 {
		cfgs = []RuleConfig{{Name: DefaultRuleName, Filter: Filter{True: true}}}
	}
	rules := make([]*rule, 0, len(cfgs))
	for _, c := range cfgs {
		r, err := newRule(c, now)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(rules, r.sameName) {
			return nil, fmt.Errorf("%w: rule %.300s", ErrEntityExists, c.Name)
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// UpdateSubscription changes how a subscription is set up, and detaches its
// links. Errors: as UpdateQueue.
func (n *Namespace) UpdateSubscription(topic string, cfg SubscriptionConfig) (SubscriptionInfo, error) {
	if err := cfg.check(topic); err != nil {
		return SubscriptionInfo{}, err
	}
	e, err := n.entities.update(KindSubscription, address.SubscriptionPath(topic, cfg.Name), func(s *settings) error {
		was := s.subscription
		cfg.Name = was.Name
		s.subscription = cfg.withDefaults()
		return unchanged("subscription", cfg.Name, was.RequiresSession == cfg.RequiresSession, true, true)
	})
	return infoOf(e, err, (*Entity).subscriptionInfo)
}

// SubscriptionInfo returns a subscription. Errors: ErrEntityNotFound.
func (n *Namespace) SubscriptionInfo(topic, name string) (SubscriptionInfo, error) {
	e, err := n.entities.findKind(KindSubscription, address.SubscriptionPath(topic, name))
	return infoOf(e, err, (*Entity).subscriptionInfo)
}

// Subscriptions returns those of one topic, sorted by name. Errors:
// ErrEntityNotFound.
func (n *Namespace) Subscriptions(topic string) ([]SubscriptionInfo, error) {
	t, err := n.entities.findKind(KindTopic, topic)
	if err != nil {
		return nil, err
	}
	return infosOf(t.subscriptions(), (*Entity).subscriptionInfo), nil
}

// DeleteSubscription deletes a subscription with its messages and rules. Errors:
// ErrEntityNotFound.
func (n *Namespace) DeleteSubscription(topic, name string) error {
	return n.entities.delete(KindSubscription, address.SubscriptionPath(topic, name))
}

func (e *Entity) subscriptionInfo() SubscriptionInfo {
	info := SubscriptionInfo{Topic: e.topic.path, Config: e.settings.Load().subscription, Counts: e.queue.Counts()}
	info.CreatedAt, info.UpdatedAt, info.AccessedAt = e.times()
	return info
}
