// SPDX-License-Identifier: Apache-2.0

package adminapi_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"github.com/google/go-cmp/cmp"

	"overdue/internal/broker"
	"overdue/internal/broker/adminapi"
)

func ptr[T any](v T) *T { return &v }

// client is the SDK's, on a server with TLS.
func client(t *testing.T, configure ...func(*broker.Config, *adminapi.Options)) (*broker.Namespace, *admin.Client) {
	t.Helper()
	n, h := setup(t, configure...)
	srv := httptest.NewTLSServer(h)
	t.Cleanup(srv.Close)
	c, err := admin.NewClientFromConnectionString(
		"Endpoint=sb://"+srv.Listener.Addr().String()+"/;SharedAccessKeyName=k;SharedAccessKey=c2VjcmV0",
		&admin.ClientOptions{ClientOptions: azcore.ClientOptions{
			Transport: srv.Client(), Retry: policy.RetryOptions{MaxRetries: -1},
		}})
	if err != nil {
		t.Fatal(err)
	}
	return n, c
}

// refused asserts the status of an error, and words of it.
func refused(t *testing.T, err error, status int, words string) {
	t.Helper()
	re, ok := errors.AsType[*azcore.ResponseError](err)
	if !ok || re.StatusCode != status || !strings.Contains(err.Error(), words) {
		t.Errorf("error = %v, want status %d and %q", err, status, words)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// collect reads all pages; pages says how long each was.
func collect[P, T any](t *testing.T, pager *runtime.Pager[P], items func(P) []T) (all []T, pages []int) {
	t.Helper()
	for pager.More() {
		page, err := pager.NextPage(t.Context())
		check(t, err)
		all = append(all, items(page)...)
		pages = append(pages, len(items(page)))
	}
	return all, pages
}

const maxTimeSpan = "P10675199DT2H48M5.4775807S"

func TestTheSDKReadsAQueueAsItWasMade(t *testing.T) {
	_, c := client(t, premium)
	ctx := t.Context()
	_, err := c.CreateQueue(ctx, "dead", nil)
	check(t, err)
	want := admin.QueueProperties{
		LockDuration: ptr("PT45S"), MaxSizeInMegabytes: ptr(int32(2048)), RequiresDuplicateDetection: ptr(true), RequiresSession: ptr(true),
		DefaultMessageTimeToLive: ptr("P1DT1H0.5S"), DeadLetteringOnMessageExpiration: ptr(true), DuplicateDetectionHistoryTimeWindow: ptr("PT4H"),
		MaxDeliveryCount: ptr(int32(100)), EnableBatchedOperations: ptr(false), Status: ptr(admin.EntityStatusReceiveDisabled),
		AutoDeleteOnIdle: ptr("PT10M"), EnablePartitioning: ptr(false), ForwardDeadLetteredMessagesTo: ptr("sb://overdue.test/dead"),
		UserMetadata: ptr(`<so> & "so"`), MaxMessageSizeInKilobytes: ptr(int64(1024)),
		AuthorizationRules: []admin.AuthorizationRule{{
			AccessRights: []admin.AccessRight{admin.AccessRightSend}, KeyName: ptr("k"), PrimaryKey: ptr("p"), SecondaryKey: ptr("s"),
		}},
	}
	created, err := c.CreateQueue(ctx, "A/b", &admin.CreateQueueOptions{Properties: &want})
	check(t, err)
	same(t, "what CreateQueue returns", created.QueueProperties, want)
	got, err := c.GetQueue(ctx, "a/B", nil)
	check(t, err)
	same(t, "what GetQueue returns", got.QueueProperties, want)
	updated, err := c.UpdateQueue(ctx, "a/b", got.QueueProperties, nil)
	check(t, err)
	same(t, "a queue written back as it was read", updated.QueueProperties, want)
}

func TestTheSDKSeesTheDefaultsOfTheService(t *testing.T) {
	_, c := client(t)
	q, err := c.CreateQueue(t.Context(), "q", nil)
	check(t, err)
	same(t, "a queue made without properties", q.QueueProperties, admin.QueueProperties{
		LockDuration: ptr("PT1M"), MaxSizeInMegabytes: ptr(int32(1024)), RequiresDuplicateDetection: ptr(false), RequiresSession: ptr(false),
		DefaultMessageTimeToLive: ptr(maxTimeSpan), DeadLetteringOnMessageExpiration: ptr(false), DuplicateDetectionHistoryTimeWindow: ptr("PT10M"),
		MaxDeliveryCount: ptr(int32(10)), EnableBatchedOperations: ptr(true), Status: ptr(admin.EntityStatusActive),
		AutoDeleteOnIdle: ptr(maxTimeSpan), EnablePartitioning: ptr(false), MaxMessageSizeInKilobytes: ptr(int64(256)),
	})
	topic, err := c.CreateTopic(t.Context(), "t", nil)
	check(t, err)
	same(t, "a topic made without properties", topic.TopicProperties, admin.TopicProperties{
		MaxSizeInMegabytes: ptr(int32(1024)), RequiresDuplicateDetection: ptr(false), DefaultMessageTimeToLive: ptr(maxTimeSpan),
		DuplicateDetectionHistoryTimeWindow: ptr("PT10M"), EnableBatchedOperations: ptr(true), Status: ptr(admin.EntityStatusActive),
		AutoDeleteOnIdle: ptr(maxTimeSpan), EnablePartitioning: ptr(false), SupportOrdering: ptr(true), MaxMessageSizeInKilobytes: ptr(int64(256)),
	})
	s, err := c.CreateSubscription(t.Context(), "t", "s", nil)
	check(t, err)
	same(t, "a subscription made without properties", s.SubscriptionProperties, admin.SubscriptionProperties{
		LockDuration: ptr("PT1M"), RequiresSession: ptr(false), DefaultMessageTimeToLive: ptr(maxTimeSpan),
		DeadLetteringOnMessageExpiration: ptr(false), EnableDeadLetteringOnFilterEvaluationExceptions: ptr(true),
		MaxDeliveryCount: ptr(int32(10)), Status: ptr(admin.EntityStatusActive), AutoDeleteOnIdle: ptr(maxTimeSpan), EnableBatchedOperations: ptr(true),
	})
}

func TestTheSizeOfAPartitionedEntityIsThatOfItsPartitions(t *testing.T) {
	n, c := client(t)
	q, err := c.CreateQueue(t.Context(), "q", &admin.CreateQueueOptions{Properties: &admin.QueueProperties{
		EnablePartitioning: ptr(true), MaxSizeInMegabytes: ptr(int32(4096)),
	}})
	check(t, err)
	same(t, "MaxSizeInMegabytes", *q.MaxSizeInMegabytes, int32(16*4096))
	updated, err := c.UpdateQueue(t.Context(), "q", q.QueueProperties, nil)
	check(t, err)
	same(t, "MaxSizeInMegabytes after it was written back", *updated.MaxSizeInMegabytes, int32(16*4096))
	info, err := n.QueueInfo("q")
	check(t, err)
	same(t, "MaxSize of the queue", info.Config.MaxSize, int64(16*4096)<<20)
	topic, err := c.CreateTopic(t.Context(), "t", &admin.CreateTopicOptions{Properties: &admin.TopicProperties{EnablePartitioning: ptr(true)}})
	check(t, err)
	same(t, "MaxSizeInMegabytes of a topic that does not say", *topic.MaxSizeInMegabytes, int32(16*1024))
}

func TestAnUpdateGivesWhatItLeavesOutItsDefault(t *testing.T) {
	n, c := client(t)
	for _, name := range []string{"dead", "live"} {
		_, err := n.CreateQueue(broker.QueueConfig{Name: name})
		check(t, err)
	}
	_, err := n.CreateQueue(broker.QueueConfig{
		Name: "q", LockDuration: 5 * time.Second, RequiresSession: true, DefaultMessageTimeToLive: time.Hour, UserMetadata: "m",
		ForwardDeadLetteredMessagesTo: "dead", DisableBatchedOperations: true, AutoDeleteOnIdle: time.Hour,
		MaxDeliveryCount: 7, MaxSize: 2 << 30, MaxMessageSize: 1 << 10, Status: broker.SendDisabled,
		AuthorizationRules: []broker.AuthorizationRule{{KeyName: "k", Send: true}},
	})
	check(t, err)
	_, err = c.UpdateQueue(t.Context(), "q", admin.QueueProperties{MaxDeliveryCount: ptr(int32(3))}, nil)
	refused(t, err, 400, "The value for the RequiresSession property of an existing Queue cannot be changed")
	_, err = c.UpdateQueue(t.Context(), "q", admin.QueueProperties{RequiresSession: ptr(true), MaxDeliveryCount: ptr(int32(3))}, nil)
	check(t, err)
	info, err := n.QueueInfo("q")
	check(t, err)
	same(t, "the queue", info.Config, broker.QueueConfig{
		Name: "q", RequiresSession: true, MaxDeliveryCount: 3,
		LockDuration: time.Minute, DuplicateDetectionHistoryTimeWindow: 10 * time.Minute, MaxSize: 1 << 30, MaxMessageSize: 256 << 10,
	})

	_, err = n.CreateTopic(broker.TopicConfig{Name: "t", DefaultMessageTimeToLive: time.Hour, UserMetadata: "m", Status: broker.Disabled})
	check(t, err)
	_, err = c.UpdateTopic(t.Context(), "t", admin.TopicProperties{UserMetadata: ptr("n")}, nil)
	check(t, err)
	topic, err := n.TopicInfo("t")
	check(t, err)
	same(t, "the topic", topic.Config, broker.TopicConfig{
		Name: "t", UserMetadata: "n", SupportOrdering: true,
		DuplicateDetectionHistoryTimeWindow: 10 * time.Minute, MaxSize: 1 << 30, MaxMessageSize: 256 << 10,
	})

	_, err = n.CreateSubscription("t", broker.SubscriptionConfig{Name: "s", LockDuration: 5 * time.Second, ForwardTo: "live", UserMetadata: "m"})
	check(t, err)
	_, err = c.UpdateSubscription(t.Context(), "t", "s", admin.SubscriptionProperties{MaxDeliveryCount: ptr(int32(3))}, nil)
	check(t, err)
	s, err := n.SubscriptionInfo("t", "s")
	check(t, err)
	same(t, "the subscription", s.Config, broker.SubscriptionConfig{Name: "s", LockDuration: time.Minute, MaxDeliveryCount: 3})
}

func TestTheSDKIsToldWhatCannotBeChanged(t *testing.T) {
	_, c := client(t)
	ctx := t.Context()
	q, err := c.CreateQueue(ctx, "q", nil)
	check(t, err)
	topic, err := c.CreateTopic(ctx, "t", nil)
	check(t, err)
	s, err := c.CreateSubscription(ctx, "t", "s", nil)
	check(t, err)

	with := q.QueueProperties
	with.RequiresSession = ptr(true)
	_, err = c.UpdateQueue(ctx, "q", with, nil)
	refused(t, err, 400, "The value for the RequiresSession property of an existing Queue cannot be changed")
	with = q.QueueProperties
	with.RequiresDuplicateDetection = ptr(true)
	_, err = c.UpdateQueue(ctx, "q", with, nil)
	refused(t, err, 400, "The value for the RequiresDuplicateDetection property of an existing Queue cannot be changed")
	with = q.QueueProperties
	with.EnablePartitioning = ptr(true)
	_, err = c.UpdateQueue(ctx, "q", with, nil)
	refused(t, err, 400, "Partitioning cannot be changed for Queue. ")
	topic.EnablePartitioning = ptr(true)
	_, err = c.UpdateTopic(ctx, "t", topic.TopicProperties, nil)
	refused(t, err, 400, "Partitioning cannot be changed for Topic. ")
	s.RequiresSession = ptr(true)
	_, err = c.UpdateSubscription(ctx, "t", "s", s.SubscriptionProperties, nil)
	refused(t, err, 400, "The value for the RequiresSession property of an existing Subscription cannot be changed")
}

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
	refused(t, err, 404, "could not be found")
	_, err = c.DeleteQueue(ctx, "none", nil)
	refused(t, err, 404, "could not be found")
	_, err = c.DeleteRule(ctx, "t", "s", "r", nil)
	refused(t, err, 404, "could not be found")
}

func TestANameIsTakenByTheFirst(t *testing.T) {
	_, c := client(t)
	ctx := t.Context()
	_, err := c.CreateQueue(ctx, "taken", nil)
	check(t, err)
	_, err = c.CreateQueue(ctx, "TAKEN", nil)
	refused(t, err, 409, "<Code>409</Code>")
	_, err = c.CreateTopic(ctx, "taken", nil)
	refused(t, err, 409, "' already exists.")
	_, err = c.CreateTopic(ctx, "t", nil)
	check(t, err)
	_, err = c.CreateSubscription(ctx, "t", "s", nil)
	check(t, err)
	_, err = c.CreateSubscription(ctx, "t", "S", nil)
	refused(t, err, 409, "' already exists.")
	_, err = c.CreateRule(ctx, "t", "s", &admin.CreateRuleOptions{Name: ptr("$default")})
	refused(t, err, 409, "' already exists.")
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

func TestTheSDKDeletes(t *testing.T) {
	n, c := client(t)
	ctx := t.Context()
	scene(t, n)
	_, err := c.DeleteRule(ctx, "t", "s", "$Default", nil)
	check(t, err)
	if rules, err := n.Rules("t", "s"); err != nil || len(rules) != 0 {
		t.Errorf("rules after the deletion of the only one = %v, %v", rules, err)
	}
	_, err = c.DeleteSubscription(ctx, "t", "s", nil)
	check(t, err)
	if _, err := n.SubscriptionInfo("t", "s"); !errors.Is(err, broker.ErrEntityNotFound) {
		t.Errorf("a deleted subscription: error = %v, want ErrEntityNotFound", err)
	}
	_, err = c.DeleteTopic(ctx, "t", nil)
	check(t, err)
	_, err = c.DeleteQueue(ctx, "fwd", nil)
	check(t, err)
	if len(n.Topics())+len(n.Queues()) != 0 {
		t.Errorf("what is left after everything was deleted = %v, %v", n.Topics(), n.Queues())
	}
}

// lacking lets nobody do what takes the claim Manage.
type lacking struct{}

func (lacking) Authorize(*http.Request, string, adminapi.Right) error {
	return fmt.Errorf("%w: only Send", adminapi.ErrClaimMissing)
}

func TestTheSDKIsToldWhichClaimIsMissing(t *testing.T) {
	n, c := client(t, func(_ *broker.Config, o *adminapi.Options) { o.Authorizer = lacking{} })
	scene(t, n)
	ctx := t.Context()
	if q, err := c.GetQueue(ctx, "none", nil); q != nil || err != nil {
		t.Errorf("GetQueue of what does not exist = %v, %v, want nothing, as it takes no claim", q, err)
	}
	errs := make(map[string]error)
	_, errs[">Manage,EntityRead claims required for this operation."] = c.GetQueue(ctx, "fwd", nil)
	_, errs["Manage,EntityRead claims required for this operation"] = c.NewListTopicsPager(nil).NextPage(ctx)
	_, errs["Manage,EntityRead claims required for this operation."] = c.GetNamespaceProperties(ctx, nil)
	_, errs["Authorization failed for specified action: Manage,EntityWrite."] = c.CreateQueue(ctx, "new", nil)
	_, errs["Authorization failed for specified action: Manage,EntityDelete."] = c.DeleteTopic(ctx, "t", nil)
	const on = "401 SubCode=40100: Unauthorized : Unauthorized access for "
	_, errs[on+"'GetSubscription'"] = c.GetSubscription(ctx, "t", "none", nil)
	_, errs[on+"'EnumerateSubscriptions' operation"] = c.NewListSubscriptionsPager("t", nil).NextPage(ctx)
	_, errs[on+"'CreateOrUpdateSubscription'"] = c.CreateSubscription(ctx, "t", "new", nil)
	_, errs[on+"'DeleteSubscription'"] = c.DeleteSubscription(ctx, "t", "s", nil)
	_, errs[on+"'GetRule'"] = c.GetRule(ctx, "t", "s", "$Default", nil)
	_, errs[on+"'EnumerateRules'"] = c.NewListRulesPager("t", "s", nil).NextPage(ctx)
	_, errs[on+"'CreateOrUpdateRule'"] = c.CreateRule(ctx, "t", "s", &admin.CreateRuleOptions{Name: ptr("r")})
	_, errs[on+"'DeleteRule'"] = c.DeleteRule(ctx, "t", "s", "$Default", nil)
	for words, err := range errs {
		refused(t, err, 401, words)
	}
	if len(n.Queues()) != 1 || len(n.Topics()) != 1 {
		t.Errorf("entities after requests without a right = %v, %v, want those from before", n.Queues(), n.Topics())
	}
}
