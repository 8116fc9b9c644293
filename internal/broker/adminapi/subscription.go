// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
)

var subscriptionFields = slices.Concat([]field[broker.SubscriptionInfo]{
	lock(func(s *broker.SubscriptionInfo) *time.Duration { return &s.Config.LockDuration }),
	boolean("RequiresSession", func(s *broker.SubscriptionInfo) *bool { return &s.Config.RequiresSession }),
	limit("DefaultMessageTimeToLive", MinTimeToLive,
		func(s *broker.SubscriptionInfo) *time.Duration { return &s.Config.DefaultMessageTimeToLive }, subscriptionStated),
	boolean("DeadLetteringOnMessageExpiration",
		func(s *broker.SubscriptionInfo) *bool { return &s.Config.DeadLetteringOnMessageExpiration }),
	inverse("DeadLetteringOnFilterEvaluationExceptions",
		func(s *broker.SubscriptionInfo) *bool { return &s.Config.IgnoreFilterEvaluationExceptions }),
	defaultRule,
	text("MessageCount", func(s *broker.SubscriptionInfo) string { return messageCount(s.Counts) }),
	deliveries(func(s *broker.SubscriptionInfo) *int { return &s.Config.MaxDeliveryCount }),
	inverse("EnableBatchedOperations",
		func(s *broker.SubscriptionInfo) *bool { return &s.Config.DisableBatchedOperations }),
	status(func(s *broker.SubscriptionInfo) *broker.Status { return &s.Config.Status }),
	destination("ForwardTo", func(s *broker.SubscriptionInfo) *string { return &s.Config.ForwardTo }),
}, instants(
	func(s *broker.SubscriptionInfo) time.Time { return s.CreatedAt },
	func(s *broker.SubscriptionInfo) time.Time { return s.UpdatedAt },
	func(s *broker.SubscriptionInfo) time.Time {
		// Unlike queues and topics, the service has no subscription that was never used.
		if s.AccessedAt.IsZero() {
			return s.CreatedAt
		}
		return s.AccessedAt
	},
), []field[broker.SubscriptionInfo]{
	words("UserMetadata", maxUserMetadata, func(s *broker.SubscriptionInfo) *string { return &s.Config.UserMetadata }),
	countDetails(func(s *broker.SubscriptionInfo) queue.Counts { return s.Counts }),
	destination("ForwardDeadLetteredMessagesTo",
		func(s *broker.SubscriptionInfo) *string { return &s.Config.ForwardDeadLetteredMessagesTo }),
	limit("AutoDeleteOnIdle", minAutoDelete,
		func(s *broker.SubscriptionInfo) *time.Duration { return &s.Config.AutoDeleteOnIdle }, subscriptionStated),
	availability(subscriptionStated),
	storedText("IsClientAffine", subscriptionStated, "false", "true"),
})

// defaultRule is read once more where a subscription is made, and shown nowhere.
var defaultRule = field[broker.SubscriptionInfo]{
	name:  "DefaultRuleDescription",
	write: func(writer, *broker.SubscriptionInfo) {},
	read: func(n *node, _ *broker.SubscriptionInfo) error {
		_, err := readRule(n)
		return err
	},
}

func subscriptionStated(s *broker.SubscriptionInfo) *map[string]string { return &s.Config.Stated }

// subscriptionPut is what the answer to a create or an update has instead of the use of a
// subscription.
var subscriptionPut = map[string]string{"AccessedAt": "<AccessedAt>0001-01-01T00:00:00</AccessedAt>", "CountDetails": ""}

func (c *call) subscriptionEntry(s broker.SubscriptionInfo) entry {
	return c.subscriptionAnswer(s, nil)
}

// subscriptionAnswer is as the entry of a kind.
func (c *call) subscriptionAnswer(s broker.SubscriptionInfo, instead map[string]string) entry {
	return entry{
		title: s.Config.Name, created: s.CreatedAt, updated: s.UpdatedAt,
		content: func(w writer) {
			writeFields(w, "SubscriptionDescription", c.version, subscriptionFields, &s, instead, s.Config.Unapplied)
		},
	}
}

func (c *call) getSubscription() error {
	if err := c.gate.allow(Read, "GetSubscription"); err != nil {
		return err
	}
	s, err := c.ns.SubscriptionInfo(c.target.Name, c.target.Subscription)
	if err != nil {
		return err
	}
	return c.writeEntry(http.StatusOK, c.subscriptionEntry(s))
}

func (c *call) listSubscriptions() error {
	if err := c.gate.allow(Read, "EnumerateSubscriptions"); err != nil {
		return err
	}
	ss, err := c.ns.Subscriptions(c.target.Name)
	if err != nil {
		return err
	}
	return list(c, "Subscriptions", ss, c.subscriptionEntry)
}

func (c *call) putSubscription() error {
	if err := c.gate.allow(Write, "CreateOrUpdateSubscription"); err != nil {
		return err
	}
	d, err := c.description("SubscriptionDescription")
	if err != nil {
		return err
	}
	if c.updates() {
		return c.updateSubscription(d)
	}
	s := broker.SubscriptionInfo{Topic: c.target.Name}
	if err := c.readSubscription(d, &s); err != nil {
		return err
	}
	s.Config.Name = c.target.Subscription
	var rules []broker.RuleConfig
	if n := d.child("DefaultRuleDescription"); n != nil {
		r, err := readRule(n)
		if err != nil {
			return err
		}
		r.Name = cmp.Or(r.Name, broker.DefaultRuleName)
		rules = append(rules, r)
	}
	if err := c.destinations([2]string{s.Config.ForwardTo, s.Config.ForwardDeadLetteredMessagesTo}); err != nil {
		return err
	}
	if s, err = c.ns.CreateSubscription(s.Topic, s.Config, rules...); err != nil {
		return err
	}
	return c.writeEntry(http.StatusCreated, c.subscriptionAnswer(s, subscriptionPut))
}

func (c *call) updateSubscription(d *node) error {
	s, missing := c.ns.SubscriptionInfo(c.target.Name, c.target.Subscription)
	sessions := s.Config.RequiresSession
	forgetFields(d, subscriptionFields, &s, new(broker.SubscriptionInfo))
	s.Config.Stated = nil
	err := c.readSubscription(d, &s)
	switch {
	case err != nil: // the service looks at values first
		return err
	case missing != nil:
		return missing
	case s.Config.RequiresSession != sessions:
		return d.cannotChange("RequiresSession")
	}
	if err := c.destinations([2]string{s.Config.ForwardTo, s.Config.ForwardDeadLetteredMessagesTo}); err != nil {
		return err
	}
	if s, err = c.ns.UpdateSubscription(s.Topic, s.Config); err != nil {
		return err
	}
	return c.writeEntry(http.StatusOK, c.subscriptionAnswer(s, subscriptionPut))
}

func (c *call) readSubscription(d *node, s *broker.SubscriptionInfo) error {
	if err := readFields(c, d, subscriptionFields, s); err != nil {
		return err
	}
	if s.Config.ForwardTo != "" {
		delete(s.Config.Stated, "AutoDeleteOnIdle") // it is forever then
	}
	s.Config.Unapplied = d.unapplied
	return nil
}
