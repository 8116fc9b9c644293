// SPDX-License-Identifier: Apache-2.0

package adminapi_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

func TestTheSDKFindsNothingWhereThereIsNothing(t *testing.T) {
	_, c := client(t)
	ctx := t.Context()
	_, err := c.CreateTopic(ctx, "t", nil)
	check(t, err)
	q, err := c.GetQueue(ctx, "none", nil)
	if q != nil || err != nil {
		t.Errorf("GetQueue = %v, %v, want nothing", q, err)
	}
	topic, err := c.GetTopic(ctx, "none", nil)
	if topic != nil || err != nil {
		t.Errorf("GetTopic = %v, %v, want nothing", topic, err)
	}
	for _, in := range []string{"none", "t"} {
		s, err := c.GetSubscription(ctx, in, "none", nil)
		if s != nil || err != nil {
			t.Errorf("GetSubscription in %s = %v, %v, want nothing", in, s, err)
		}
	}
	_, err = c.UpdateQueue(ctx, "none", admin.QueueProperties{}, nil)
	refused(t, err, 404, "404 Not Found")
	_, err = c.UpdateTopic(ctx, "none", admin.TopicProperties{}, nil)
	refused(t, err, 404, "404 Not Found")
	_, err = c.UpdateSubscription(ctx, "t", "none", admin.SubscriptionProperties{}, nil)
	refused(t, err, 404, "404 Not Found")
	_, err = c.CreateSubscription(ctx, "none", "s", nil)
	refused(t, err, 404, "not recognized as a namespace policy put request")
	_, err = c.DeleteQueue(ctx, "none", nil)
	refused(t, err, 404, "No service is hosted at the specified address.")
	_, err = c.DeleteRule(ctx, "t", "s", "r", nil)
	refused(t, err, 404, "could not be found")
}

func TestTheSDKPagesThroughLists(t *testing.T) {
	_, c := client(t)
	ctx := t.Context()
	var names []string
	for i := range 5 {
		names = append(names, fmt.Sprintf("e%d", i))
		_, err := c.CreateQueue(ctx, "q/"+names[i], nil)
		check(t, err)
		_, err = c.CreateTopic(ctx, "t/"+names[i], nil)
		check(t, err)
		_, err = c.CreateSubscription(ctx, "t/e0", names[i], nil)
		check(t, err)
		_, err = c.CreateRule(ctx, "t/e0", "e0", &admin.CreateRuleOptions{Name: &names[i]})
		check(t, err)
	}
	qs, pages := collect(t, c.NewListQueuesPager(&admin.ListQueuesOptions{MaxPageSize: 2}), func(p admin.ListQueuesResponse) (s []string) {
		for _, q := range p.Queues {
			s = append(s, q.QueueName)
		}
		return s
	})
	same(t, "queues", qs, []string{"q/e0", "q/e1", "q/e2", "q/e3", "q/e4"})
	same(t, "lengths of pages", pages, []int{2, 2, 1})
	ts, _ := collect(t, c.NewListTopicsRuntimePropertiesPager(nil), func(p admin.ListTopicsRuntimePropertiesResponse) (s []string) {
		for _, t := range p.TopicRuntimeProperties {
			s = append(s, fmt.Sprint(t.TopicName, " ", t.SubscriptionCount))
		}
		return s
	})
	same(t, "topics", ts, []string{"t/e0 5", "t/e1 0", "t/e2 0", "t/e3 0", "t/e4 0"})
	ss, pages := collect(t, c.NewListSubscriptionsPager("t/e0", &admin.ListSubscriptionsOptions{MaxPageSize: 3}),
		func(p admin.ListSubscriptionsResponse) (s []string) {
			for _, sub := range p.Subscriptions {
				s = append(s, sub.TopicName+" "+sub.SubscriptionName)
			}
			return s
		})
	same(t, "subscriptions", ss, []string{"t/e0 e0", "t/e0 e1", "t/e0 e2", "t/e0 e3", "t/e0 e4"})
	same(t, "lengths of pages", pages, []int{3, 2})
	rs, _ := collect(t, c.NewListRulesPager("t/e0", "e0", &admin.ListRulesOptions{MaxPageSize: 4}), func(p admin.ListRulesResponse) (s []string) {
		for _, r := range p.Rules {
			s = append(s, r.Name)
		}
		return s
	})
	same(t, "rules", rs, append([]string{"$Default"}, names...))
}

func TestTheSDKReadsRulesAsTheyWereMade(t *testing.T) {
	_, c := client(t)
	ctx := t.Context()
	_, err := c.CreateTopic(ctx, "t", nil)
	check(t, err)
	parameters := map[string]any{
		"@s": "hello <world>", "@i": int64(100), "@f": 100.1, "@b": true, "@t": time.Date(2001, 1, 1, 1, 2, 3, 4000, time.UTC),
	}
	rules := []admin.RuleProperties{
		{Name: "true", Filter: &admin.TrueFilter{}},
		{Name: "false", Filter: &admin.FalseFilter{}},
		{Name: "sql", Filter: &admin.SQLFilter{Expression: "a < 1 AND b > 'x'"}},
		{
			Name: "both", Filter: &admin.SQLFilter{Expression: "a IN (@s, @i, @f, @b, @t)", Parameters: parameters},
			Action: &admin.SQLAction{Expression: "SET a = @s", Parameters: parameters},
		},
		{Name: "all", Filter: &admin.CorrelationFilter{
			ContentType: ptr("c"), CorrelationID: ptr("i"), MessageID: ptr("m"), ReplyTo: ptr("r"), ReplyToSessionID: ptr("rs"),
			SessionID: ptr("s"), Subject: ptr("l"), To: ptr("t"), ApplicationProperties: parameters,
		}},
		{Name: "one", Filter: &admin.CorrelationFilter{Subject: ptr("")}},
	}
	_, err = c.CreateSubscription(ctx, "t", "s", &admin.CreateSubscriptionOptions{Properties: &admin.SubscriptionProperties{DefaultRule: &rules[3]}})
	check(t, err)
	got, err := c.GetRule(ctx, "t", "s", "both", nil)
	check(t, err)
	same(t, "the rule that a subscription was made with", got.RuleProperties, rules[3])
	_, err = c.DeleteRule(ctx, "t", "s", "both", nil)
	check(t, err)
	for _, r := range rules {
		created, err := c.CreateRule(ctx, "t", "s", &admin.CreateRuleOptions{Name: &r.Name, Filter: r.Filter, Action: r.Action})
		check(t, err)
		same(t, "what CreateRule returns", created.RuleProperties, r)
		updated, err := c.UpdateRule(ctx, "t", "s", created.RuleProperties)
		check(t, err)
		same(t, "what UpdateRule returns", updated.RuleProperties, r)
		got, err := c.GetRule(ctx, "t", "s", r.Name, nil)
		check(t, err)
		same(t, "what GetRule returns", got.RuleProperties, r)
	}
}

func TestTheSDKCountsMessages(t *testing.T) {
	n, c := client(t)
	ctx := t.Context()
	_, err := c.CreateQueue(ctx, "q", nil)
	check(t, err)
	fresh, err := c.GetQueueRuntimeProperties(ctx, "q", nil)
	check(t, err)
	if fresh.CreatedAt.IsZero() || fresh.UpdatedAt.IsZero() || !fresh.AccessedAt.IsZero() || fresh.SizeInBytes != 0 {
		t.Errorf("a new queue = %+v, want it to be empty, and never used", fresh)
	}
	e, err := n.Entity("q")
	check(t, err)
	if err := e.Send([]byte{0x00, 0x53, 0x75, 0xa0, 0x02, 'h', 'i'}); err != nil { // a data section
		t.Fatal(err)
	}
	used, err := c.GetQueueRuntimeProperties(ctx, "q", nil)
	check(t, err)
	if used.ActiveMessageCount != 1 || used.TotalMessageCount != 1 || used.SizeInBytes == 0 || used.AccessedAt.IsZero() {
		t.Errorf("a queue with one message = %+v, want it to be counted", used)
	}
	_, err = c.CreateTopic(ctx, "t", nil)
	check(t, err)
	_, err = c.CreateSubscription(ctx, "t", "s", nil)
	check(t, err)
	_, err = c.CreateRule(ctx, "t", "s", &admin.CreateRuleOptions{Name: ptr("c"), Filter: &admin.CorrelationFilter{Subject: ptr("x")}})
	check(t, err)
	topic, err := c.GetTopicRuntimeProperties(ctx, "t", nil)
	check(t, err)
	// The rule that a subscription has by itself counts as one in SQL.
	same(t, "counts of a topic", []int32{topic.SubscriptionCount, topic.SQLFilterCount, topic.CorrelationFilterCount}, []int32{1, 1, 1})
	s, err := c.GetSubscriptionRuntimeProperties(ctx, "t", "s", nil)
	check(t, err)
	if s.AccessedAt.IsZero() {
		t.Error("AccessedAt of a new subscription is never, want a time")
	}
}
