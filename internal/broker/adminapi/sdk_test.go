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
		AutoDeleteOnIdle: ptr("PT10M"), EnablePartitioning: ptr(false), ForwardDeadLetteredMessagesTo: ptr("sb://localhost/dead"),
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
		Kept: broker.Kept{Stated: map[string]string{"EntityAvailabilityStatus": "Unknown"}},
	})

	_, err = n.CreateTopic(broker.TopicConfig{Name: "t", DefaultMessageTimeToLive: time.Hour, UserMetadata: "m", Status: broker.Disabled})
	check(t, err)
	_, err = c.UpdateTopic(t.Context(), "t", admin.TopicProperties{UserMetadata: ptr("n")}, nil)
	check(t, err)
	topic, err := n.TopicInfo("t")
	check(t, err)
	same(t, "the topic", topic.Config, broker.TopicConfig{
		Name: "t", UserMetadata: "n",
		DuplicateDetectionHistoryTimeWindow: 10 * time.Minute, MaxSize: 1 << 30, MaxMessageSize: 256 << 10,
		Kept: broker.Kept{Stated: map[string]string{"EntityAvailabilityStatus": "Unknown"}},
	})

	_, err = n.CreateSubscription("t", broker.SubscriptionConfig{Name: "s", LockDuration: 5 * time.Second, ForwardTo: "live", UserMetadata: "m"})
	check(t, err)
	_, err = c.UpdateSubscription(t.Context(), "t", "s", admin.SubscriptionProperties{MaxDeliveryCount: ptr(int32(3))}, nil)
	check(t, err)
	s, err := n.SubscriptionInfo("t", "s")
	check(t, err)
	same(t, "the subscription", s.Config, broker.SubscriptionConfig{Name: "s", LockDuration: time.Minute, MaxDeliveryCount: 3})
}

func TestTheSDKLearnsWhatCannotBeChanged(t *testing.T) {
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

func TestANameIsTakenByTheFirst(t *testing.T) {
	_, c := client(t)
	ctx := t.Context()
	_, err := c.CreateQueue(ctx, "taken", nil)
	check(t, err)
	_, err = c.CreateQueue(ctx, "TAKEN", nil)
	refused(t, err, 409, "<Code>409</Code>")
	_, err = c.CreateTopic(ctx, "taken", nil)
	refused(t, err, 409, "SubCode=40900. Conflict.")
	_, err = c.CreateTopic(ctx, "t", nil)
	check(t, err)
	_, err = c.CreateSubscription(ctx, "t", "s", nil)
	check(t, err)
	_, err = c.CreateSubscription(ctx, "t", "S", nil)
	refused(t, err, 409, "' already exists.")
	_, err = c.CreateRule(ctx, "t", "s", &admin.CreateRuleOptions{Name: ptr("$default")})
	refused(t, err, 409, "' already exists.")
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
	return fmt.Errorf("%w: only Send", broker.ErrClaimMissing)
}

func TestTheSDKLearnsWhichClaimIsMissing(t *testing.T) {
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
