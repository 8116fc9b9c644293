// SPDX-License-Identifier: Apache-2.0

package exercise

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"overdue/internal/amqp"
	"overdue/internal/broker"
)

// externalEntities makes the entities of the suite with the administration
// client of the SDK.
type externalEntities struct{ client *admin.Client }

func (x *externalEntities) createQueue(t *testing.T, cfg broker.QueueConfig) string {
	t.Helper()
	if cfg.Name == "" {
		cfg.Name = externalName("queue")
	}
	if _, err := x.client.CreateQueue(t.Context(), cfg.Name, &admin.CreateQueueOptions{Properties: queueProperties(&cfg)}); err != nil {
		t.Fatalf("create queue: %v", err)
	}
	t.Cleanup(func() {
		// The case may have deleted it. An entity that is left over deletes itself.
		_, _ = x.client.DeleteQueue(context.Background(), cfg.Name, nil)
	})
	return cfg.Name
}

func (x *externalEntities) updateQueue(t *testing.T, cfg broker.QueueConfig) {
	t.Helper()
	if _, err := x.client.UpdateQueue(t.Context(), cfg.Name, *queueProperties(&cfg), nil); err != nil {
		t.Fatalf("update queue: %v", err)
	}
}

func (x *externalEntities) deleteQueue(t *testing.T, name string) {
	t.Helper()
	if _, err := x.client.DeleteQueue(t.Context(), name, nil); err != nil {
		t.Fatalf("delete queue: %v", err)
	}
}

func (x *externalEntities) createTopic(t *testing.T, cfg broker.TopicConfig) string {
	t.Helper()
	cfg.Name = externalName("topic")
	_, err := x.client.CreateTopic(t.Context(), cfg.Name, &admin.CreateTopicOptions{Properties: &admin.TopicProperties{
		DefaultMessageTimeToLive:            isoDuration(cfg.DefaultMessageTimeToLive),
		RequiresDuplicateDetection:          &cfg.RequiresDuplicateDetection,
		DuplicateDetectionHistoryTimeWindow: isoDuration(cfg.DuplicateDetectionHistoryTimeWindow),
		EnablePartitioning:                  &cfg.EnablePartitioning,
		Status:                              statusOf(cfg.Status),
	}})
	if err != nil {
		t.Fatalf("create topic: %v", err)
	}
	t.Cleanup(func() { _, _ = x.client.DeleteTopic(context.Background(), cfg.Name, nil) }) // as for queues
	return cfg.Name
}

func (x *externalEntities) createSubscription(t *testing.T, topic string, cfg broker.SubscriptionConfig, rules ...broker.RuleConfig) {
	t.Helper()
	options := admin.CreateSubscriptionOptions{Properties: &admin.SubscriptionProperties{
		LockDuration:                                    isoDuration(cfg.LockDuration),
		MaxDeliveryCount:                                countOf(cfg.MaxDeliveryCount),
		DefaultMessageTimeToLive:                        isoDuration(cfg.DefaultMessageTimeToLive),
		DeadLetteringOnMessageExpiration:                &cfg.DeadLetteringOnMessageExpiration,
		EnableDeadLetteringOnFilterEvaluationExceptions: new(!cfg.IgnoreFilterEvaluationExceptions),
		RequiresSession:                                 &cfg.RequiresSession,
		ForwardTo:                                       amqp.Optional(cfg.ForwardTo),
		ForwardDeadLetteredMessagesTo:                   amqp.Optional(cfg.ForwardDeadLetteredMessagesTo),
		Status:                                          statusOf(cfg.Status),
	}}
	if len(rules) > 0 {
		first := ruleProperties(&rules[0])
		options.Properties.DefaultRule = &first
		rules = rules[1:]
	}
	if _, err := x.client.CreateSubscription(t.Context(), topic, cfg.Name, &options); err != nil {
		t.Fatalf("create subscription: %v", err)
	}
	for i := range rules {
		r := ruleProperties(&rules[i])
		_, err := x.client.CreateRule(t.Context(), topic, cfg.Name, &admin.CreateRuleOptions{Name: &r.Name, Filter: r.Filter, Action: r.Action})
		if err != nil {
			t.Fatalf("create rule: %v", err)
		}
	}
}

func queueProperties(c *broker.QueueConfig) *admin.QueueProperties {
	return &admin.QueueProperties{
		LockDuration:                        isoDuration(c.LockDuration),
		MaxDeliveryCount:                    countOf(c.MaxDeliveryCount),
		DefaultMessageTimeToLive:            isoDuration(c.DefaultMessageTimeToLive),
		DeadLetteringOnMessageExpiration:    &c.DeadLetteringOnMessageExpiration,
		RequiresSession:                     &c.RequiresSession,
		RequiresDuplicateDetection:          &c.RequiresDuplicateDetection,
		DuplicateDetectionHistoryTimeWindow: isoDuration(c.DuplicateDetectionHistoryTimeWindow),
		EnablePartitioning:                  whereTrue(c.EnablePartitioning),
		AutoDeleteOnIdle:                    isoDuration(c.AutoDeleteOnIdle),
		ForwardTo:                           amqp.Optional(c.ForwardTo),
		ForwardDeadLetteredMessagesTo:       amqp.Optional(c.ForwardDeadLetteredMessagesTo),
		Status:                              statusOf(c.Status),
		AuthorizationRules:                  authorizationRules(c.AuthorizationRules),
	}
}

// whereTrue keeps EnablePartitioning from standing before ForwardTo, which would not be applied.
func whereTrue(is bool) *bool {
	if !is {
		return nil
	}
	return &is
}

func authorizationRules(rules []broker.AuthorizationRule) []admin.AuthorizationRule {
	var all []admin.AuthorizationRule
	for _, r := range rules {
		var rights []admin.AccessRight
		for right, has := range map[admin.AccessRight]bool{
			admin.AccessRightSend: r.Send || r.Manage, admin.AccessRightListen: r.Listen || r.Manage, admin.AccessRightManage: r.Manage,
		} {
			if has {
				rights = append(rights, right)
			}
		}
		all = append(all, admin.AuthorizationRule{
			KeyName: &r.KeyName, PrimaryKey: amqp.Optional(r.PrimaryKey), SecondaryKey: amqp.Optional(r.SecondaryKey), AccessRights: rights,
		})
	}
	return all
}

func ruleProperties(c *broker.RuleConfig) admin.RuleProperties {
	r := admin.RuleProperties{Name: c.Name, Filter: &admin.TrueFilter{}}
	switch f := &c.Filter; {
	case f.SQL != nil:
		r.Filter = &admin.SQLFilter{Expression: f.SQL.Expression, Parameters: byName(f.SQL.Parameters)}
	case f.Correlation != nil:
		o := f.Correlation
		r.Filter = &admin.CorrelationFilter{
			CorrelationID: o.CorrelationID, MessageID: o.MessageID, To: o.To, ReplyTo: o.ReplyTo, Subject: o.Label,
			SessionID: o.SessionID, ReplyToSessionID: o.ReplyToSessionID, ContentType: o.ContentType, ApplicationProperties: byName(o.Properties),
		}
	case f.False:
		r.Filter = &admin.FalseFilter{}
	}
	if c.Action.SQL != "" {
		r.Action = &admin.SQLAction{Expression: c.Action.SQL, Parameters: byName(c.Action.Parameters)}
	}
	return r
}

func byName(vs broker.Values) map[string]any {
	m := make(map[string]any, len(vs))
	for _, v := range vs {
		m[v.Key] = v.Value
	}
	return m
}

// isoDuration leaves a duration of 0 to the service.
func isoDuration(d time.Duration) *string {
	if d == 0 {
		return nil
	}
	s := fmt.Sprintf("PT%gS", d.Seconds())
	return &s
}

func countOf(n int) *int32 {
	if n == 0 {
		return nil
	}
	c := int32(n)
	return &c
}

func statusOf(s broker.Status) *admin.EntityStatus {
	status := map[broker.Status]admin.EntityStatus{
		broker.Active: admin.EntityStatusActive, broker.Disabled: admin.EntityStatusDisabled,
		broker.SendDisabled: admin.EntityStatusSendDisabled, broker.ReceiveDisabled: admin.EntityStatusReceiveDisabled,
	}[s]
	return &status
}
