// SPDX-License-Identifier: Apache-2.0

package adminapi_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/broker"
	"overdue/internal/broker/adminapi"
	"overdue/internal/servicebus/atom"
)

// notApplied collects what a handler reports.
func notApplied(into *[]adminapi.Unapplied) func(*broker.Config, *adminapi.Options) {
	return func(_ *broker.Config, o *adminapi.Options) {
		o.NotApplied = func(u adminapi.Unapplied) { *into = append(*into, u) }
	}
}

func TestElementsOutOfOrderAreKeptAndNotApplied(t *testing.T) {
	var reported []adminapi.Unapplied
	n, h := setup(t, notApplied(&reported))
	scene(t, n)
	must(t, h, 201, "PUT", "/q"+version, describe("QueueDescription", `<MaxDeliveryCount>7</MaxDeliveryCount><LockDuration>PT7S</LockDuration>`+
		`<Unheard i:type="x">of</Unheard><EnableExpress>true</EnableExpress><ForwardTo>fwd</ForwardTo><MaxDeliveryCount>8</MaxDeliveryCount>`), "User-Agent", "sdk/1")
	q, err := n.QueueInfo("q")
	check(t, err)
	if c := q.Config; c.MaxDeliveryCount != 7 || c.LockDuration.Seconds() != 60 || c.ForwardTo != "" || !c.EnableExpress {
		t.Errorf("queue = %+v, want 7 deliveries, the default lock, express, and no forward", c)
	}
	same(t, "what is reported", reported, []adminapi.Unapplied{
		{Path: "q", Element: "LockDuration", Behind: "MaxDeliveryCount", Client: "sdk/1"},
		{Path: "q", Element: "MaxDeliveryCount", Behind: "EnableExpress", Client: "sdk/1"},
		{Path: "q", Element: "ForwardTo", Behind: "EnableExpress", Client: "sdk/1"},
	})
	// They stay where they are, also through an update that states what was read.
	wantEcho := func(answer string) {
		t.Helper()
		for _, want := range []string{
			`<LockDuration>PT1M</LockDuration>`,
			`<MaxDeliveryCount>7</MaxDeliveryCount><LockDuration>PT7S</LockDuration><Unheard i:type="x">of</Unheard><EnableBatchedOperations>`,
			`<EnableExpress>true</EnableExpress><ForwardTo>fwd</ForwardTo><MaxDeliveryCount>8</MaxDeliveryCount><MaxMessageSizeInKilobytes>`,
		} {
			if !strings.Contains(answer, want) {
				t.Errorf("answer\n%s\nhas no %s", answer, want)
			}
		}
	}
	read := must(t, h, 200, "GET", "/q"+version, "")
	wantEcho(read)
	wantEcho(must(t, h, 200, "PUT", "/q"+version, read, "If-Match", "*"))
	wantEcho(must(t, h, 200, "GET", "/q"+version, ""))
	if written := must(t, h, 200, "PUT", "/q"+version, queue, "If-Match", "*"); strings.Contains(written, "fwd") {
		t.Errorf("an update without the elements is answered\n%s\nwant them gone", written)
	}
	// The rest of a request counts: a bad value that is not applied is none.
	must(t, h, 201, "PUT", "/bad"+version, describe("QueueDescription", `<EnableExpress>true</EnableExpress><ForwardTo>none</ForwardTo>`))
}

func TestPrefixesOfElementsDoNotMatter(t *testing.T) {
	n, h := setup(t)
	must(t, h, 201, "PUT", "/q"+version, `<?xml version="1.0" encoding="UTF-8"?>
		<a:entry xmlns:a="http://www.w3.org/2005/Atom"><!-- from Python --><a:title>x</a:title><a:content type="application/xml">
		<b:QueueDescription xmlns:b="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect" xmlns:n="http://www.w3.org/2001/XMLSchema-instance">
		<b:LockDuration>PT7S</b:LockDuration><b:Unheard>of</b:Unheard><b:RequiresSession>TRUE</b:RequiresSession>
		<b:MaxDeliveryCount> 7 </b:MaxDeliveryCount><b:UserMetadata n:nil="true"/></b:QueueDescription></a:content></a:entry>`)
	q, err := n.QueueInfo("q")
	check(t, err)
	if c := q.Config; c.MaxDeliveryCount != 7 || c.LockDuration.Seconds() != 7 || !c.RequiresSession || c.UserMetadata != "" {
		t.Errorf("queue = %+v, want 7 deliveries, 7 s and sessions", c)
	}
}

func TestADefaultRuleOutOfOrderIsNotMade(t *testing.T) {
	n, h := setup(t)
	scene(t, n)
	const rule = `<DefaultRuleDescription><Filter i:type="FalseFilter"/><Name>r</Name></DefaultRuleDescription>`
	for place, want := range map[string]string{
		`<RequiresSession>false</RequiresSession>` + rule: "r", `<MaxDeliveryCount>3</MaxDeliveryCount>` + rule: broker.DefaultRuleName,
	} {
		must(t, h, 201, "PUT", "/t/Subscriptions/new"+version, describe("SubscriptionDescription", place))
		rules, err := n.Rules("t", "new")
		check(t, err)
		if len(rules) != 1 || rules[0].Config.Name != want {
			t.Errorf("%s made the rules %+v, want %s alone", place, rules, want)
		}
		must(t, h, 200, "DELETE", "/t/Subscriptions/new"+version, "")
	}
}

// The settings of the SDKs, in the order in which they send them. docs/broker/README.md has what
// follows from it.
var sent = map[string]struct {
	kind, elements string
	unapplied      []string // where all of them are sent
}{
	"Go 1.11 queue": {"QueueDescription", `LockDuration MaxSizeInMegabytes RequiresDuplicateDetection RequiresSession DefaultMessageTimeToLive
		DeadLetteringOnMessageExpiration DuplicateDetectionHistoryTimeWindow MaxDeliveryCount EnableBatchedOperations AuthorizationRules Status
		AutoDeleteOnIdle EnablePartitioning ForwardTo ForwardDeadLetteredMessagesTo UserMetadata MaxMessageSizeInKilobytes`,
		[]string{"ForwardTo", "UserMetadata"}},
	"Go 1.11 topic": {"TopicDescription", `DefaultMessageTimeToLive MaxSizeInMegabytes RequiresDuplicateDetection DuplicateDetectionHistoryTimeWindow
		EnableBatchedOperations AuthorizationRules Status UserMetadata SupportOrdering AutoDeleteOnIdle EnablePartitioning MaxMessageSizeInKilobytes`, nil},
	"Go 1.11 subscription": {"SubscriptionDescription", `LockDuration RequiresSession DefaultMessageTimeToLive DeadLetteringOnMessageExpiration
		DeadLetteringOnFilterEvaluationExceptions DefaultRuleDescription MaxDeliveryCount EnableBatchedOperations Status ForwardTo UserMetadata
		ForwardDeadLetteredMessagesTo AutoDeleteOnIdle`, nil},
	"JavaScript 7.9 queue": {"QueueDescription", `LockDuration MaxSizeInMegabytes RequiresDuplicateDetection RequiresSession DefaultMessageTimeToLive
		DeadLetteringOnMessageExpiration DuplicateDetectionHistoryTimeWindow MaxDeliveryCount EnableBatchedOperations AuthorizationRules Status ForwardTo
		UserMetadata AutoDeleteOnIdle EnablePartitioning ForwardDeadLetteredMessagesTo EntityAvailabilityStatus EnableExpress MaxMessageSizeInKilobytes`,
		[]string{"EntityAvailabilityStatus"}},
	"JavaScript 7.9 topic": {"TopicDescription", `DefaultMessageTimeToLive MaxSizeInMegabytes RequiresDuplicateDetection
		DuplicateDetectionHistoryTimeWindow EnableBatchedOperations AuthorizationRules Status UserMetadata SupportOrdering AutoDeleteOnIdle
		EnablePartitioning EntityAvailabilityStatus EnableExpress MaxMessageSizeInKilobytes`, nil},
	"JavaScript 7.9 subscription": {"SubscriptionDescription", `LockDuration RequiresSession DefaultMessageTimeToLive DeadLetteringOnMessageExpiration
		DeadLetteringOnFilterEvaluationExceptions DefaultRuleDescription MaxDeliveryCount EnableBatchedOperations Status ForwardTo UserMetadata
		ForwardDeadLetteredMessagesTo AutoDeleteOnIdle EntityAvailabilityStatus`, nil},
	"Python 7.15 queue": {"QueueDescription", `LockDuration MaxSizeInMegabytes RequiresDuplicateDetection RequiresSession DefaultMessageTimeToLive
		DeadLetteringOnMessageExpiration DuplicateDetectionHistoryTimeWindow MaxDeliveryCount EnableBatchedOperations SizeInBytes MessageCount
		IsAnonymousAccessible AuthorizationRules Status CreatedAt UpdatedAt AccessedAt SupportOrdering CountDetails AutoDeleteOnIdle EnablePartitioning
		EntityAvailabilityStatus EnableExpress ForwardTo UserMetadata ForwardDeadLetteredMessagesTo MaxMessageSizeInKilobytes`,
		[]string{"ForwardDeadLetteredMessagesTo", "ForwardTo", "UserMetadata"}},
	"Python 7.15 topic": {"TopicDescription", `DefaultMessageTimeToLive MaxSizeInMegabytes RequiresDuplicateDetection DuplicateDetectionHistoryTimeWindow
		EnableBatchedOperations SizeInBytes FilteringMessagesBeforePublishing IsAnonymousAccessible AuthorizationRules Status CreatedAt UpdatedAt AccessedAt
		SupportOrdering CountDetails SubscriptionCount SqlFilterCount CorrelationFilterCount AutoDeleteOnIdle EnablePartitioning EntityAvailabilityStatus
		EnableSubscriptionPartitioning EnableExpress UserMetadata MaxMessageSizeInKilobytes`, []string{"UserMetadata"}},
	"Python 7.15 subscription": {"SubscriptionDescription", `LockDuration RequiresSession DefaultMessageTimeToLive DeadLetteringOnMessageExpiration
		DeadLetteringOnFilterEvaluationExceptions MessageCount MaxDeliveryCount EnableBatchedOperations Status ForwardTo CreatedAt UpdatedAt AccessedAt
		CountDetails ForwardDeadLetteredMessagesTo AutoDeleteOnIdle EntityAvailabilityStatus UserMetadata`, []string{"UserMetadata"}},
	"Java 7.17 queue": {"QueueDescription", `LockDuration MaxSizeInMegabytes RequiresDuplicateDetection RequiresSession DefaultMessageTimeToLive
		DeadLetteringOnMessageExpiration DuplicateDetectionHistoryTimeWindow MaxDeliveryCount EnableBatchedOperations SizeInBytes MessageCount
		IsAnonymousAccessible AuthorizationRules Status ForwardTo UserMetadata CreatedAt UpdatedAt AccessedAt SupportOrdering CountDetails AutoDeleteOnIdle
		EnablePartitioning EntityAvailabilityStatus ForwardDeadLetteredMessagesTo EnableExpress MaxMessageSizeInKilobytes`, nil},
	"Java 7.17 topic": {"TopicDescription", `DefaultMessageTimeToLive MaxSizeInMegabytes RequiresDuplicateDetection DuplicateDetectionHistoryTimeWindow
		EnableBatchedOperations SizeInBytes FilteringMessagesBeforePublishing IsAnonymousAccessible AuthorizationRules Status CreatedAt UpdatedAt AccessedAt
		SupportOrdering CountDetails SubscriptionCount AutoDeleteOnIdle EnablePartitioning EntityAvailabilityStatus EnableSubscriptionPartitioning
		EnableExpress UserMetadata MaxMessageSizeInKilobytes`, []string{"UserMetadata"}},
	"Java 7.17 subscription": {"SubscriptionDescription", `LockDuration RequiresSession DefaultMessageTimeToLive DeadLetteringOnMessageExpiration
		DeadLetteringOnFilterEvaluationExceptions DefaultRuleDescription MessageCount MaxDeliveryCount EnableBatchedOperations Status ForwardTo CreatedAt
		UpdatedAt AccessedAt UserMetadata ForwardDeadLetteredMessagesTo AutoDeleteOnIdle EntityAvailabilityStatus`, nil},
	".NET 7.21 queue": {"QueueDescription", `LockDuration MaxSizeInMegabytes RequiresDuplicateDetection RequiresSession DefaultMessageTimeToLive
		DeadLetteringOnMessageExpiration DuplicateDetectionHistoryTimeWindow MaxDeliveryCount EnableBatchedOperations IsAnonymousAccessible
		AuthorizationRules Status ForwardTo UserMetadata SupportOrdering AutoDeleteOnIdle EnablePartitioning ForwardDeadLetteredMessagesTo EnableExpress
		MaxMessageSizeInKilobytes`, nil},
	".NET 7.21 topic": {"TopicDescription", `DefaultMessageTimeToLive MaxSizeInMegabytes RequiresDuplicateDetection DuplicateDetectionHistoryTimeWindow
		EnableBatchedOperations FilteringMessagesBeforePublishing IsAnonymousAccessible AuthorizationRules Status UserMetadata SupportOrdering
		AutoDeleteOnIdle EnablePartitioning EnableSubscriptionPartitioning EnableExpress MaxMessageSizeInKilobytes`, nil},
	".NET 7.21 subscription": {"SubscriptionDescription", `LockDuration RequiresSession DefaultMessageTimeToLive DeadLetteringOnMessageExpiration
		DeadLetteringOnFilterEvaluationExceptions DefaultRuleDescription MaxDeliveryCount EnableBatchedOperations Status ForwardTo UserMetadata
		ForwardDeadLetteredMessagesTo AutoDeleteOnIdle`, nil},
}

func TestTheServiceDoesNotApplyAllThatItsSDKsSend(t *testing.T) {
	serverSaid := strings.Fields("SizeInBytes MessageCount CreatedAt UpdatedAt AccessedAt CountDetails SubscriptionCount SqlFilterCount CorrelationFilterCount")
	for name, c := range sent {
		order, got := atom.OrderOf(c.kind), []string(nil)
		for _, e := range strings.Fields(c.elements) {
			if !order.Applies(e) && !slices.Contains(serverSaid, e) {
				got = append(got, e)
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(c.unapplied, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// An update of a queue or a topic is answered with what it stated. Python's live tests recorded it.
func TestAnUpdateIsAnsweredWithWhatItStated(t *testing.T) {
	_, h := setup(t)
	for kind, want := range map[string]string{
		"QueueDescription": `<SizeInBytes>3</SizeInBytes><Status>Active</Status><CreatedAt>2024-09-04T18:18:06.687Z</CreatedAt>` +
			`<UpdatedAt>0001-01-01T00:00:00Z</UpdatedAt><AccessedAt>0001-01-01T00:00:00Z</AccessedAt><EnableExpress>true</EnableExpress>`,
		"TopicDescription": `<SizeInBytes>3</SizeInBytes><Status>Active</Status><CreatedAt>2024-09-04T18:18:06.687Z</CreatedAt>` +
			`<UpdatedAt>0001-01-01T00:00:00Z</UpdatedAt><AccessedAt>0001-01-01T00:00:00Z</AccessedAt><EnableExpress>true</EnableExpress>`,
	} {
		path := "/" + kind + "?api-version=2021-05"
		must(t, h, 201, "PUT", path, describe(kind, ""))
		body := describe(kind, `<SizeInBytes>3</SizeInBytes><Status>Active</Status><CreatedAt>2024-09-04T18:18:06.687Z</CreatedAt>`+
			`<AccessedAt>0001-01-01T00:00:00.000Z</AccessedAt><EnableExpress>true</EnableExpress>`)
		answer := must(t, h, http.StatusOK, "PUT", path, body, "If-Match", "*")
		if !strings.Contains(answer, `XMLSchema-instance">`+want+`</`+kind) || strings.Contains(answer, "<published>") {
			t.Errorf("update of a %s = %s\nwant %s, and no published", kind, answer, want)
		}
		if answer := must(t, h, 200, "GET", path, ""); element(t, answer, "EntityAvailabilityStatus") != "Unknown" || element(t, answer, "SizeInBytes") != "0" {
			t.Errorf("%s after an update that does not name it = %s, want its availability unknown and its own size", kind, answer)
		}
	}
}

func TestAnswersToCreatesLackTheUse(t *testing.T) {
	n, h := setup(t)
	scene(t, n)
	for path, kind := range map[string]string{"/q": "QueueDescription", "/new": "TopicDescription", "/t/Subscriptions/new": "SubscriptionDescription"} {
		created, read := must(t, h, 201, "PUT", path+version, describe(kind, "")), must(t, h, 200, "GET", path+version, "")
		for _, name := range []string{"CountDetails", "SubscriptionCount"} {
			if strings.Contains(created, "<"+name) {
				t.Errorf("the answer to a create of a %s has %s", kind, name)
			}
		}
		if strings.Contains(created, "<AccessedAt>0001-01-01T00:00:00</AccessedAt>") != (kind == "SubscriptionDescription") ||
			strings.Contains(created, "<AccessedAt>") != (kind == "SubscriptionDescription") {
			t.Errorf("created %s = %s, want AccessedAt, which never was, of a subscription alone", kind, created)
		}
		if !strings.Contains(read, "<CountDetails ") || strings.Contains(read, "<AccessedAt>0001-01-01T00:00:00Z</AccessedAt>") != (kind != "SubscriptionDescription") {
			t.Errorf("%s = %s, want CountDetails, and that queues and topics were never accessed", kind, read)
		}
	}
}

func TestRefusedValuesAreNamedInTheWordsOfTheService(t *testing.T) {
	n, h := setup(t)
	scene(t, n)
	const lock, window = "<LockDuration>P25D</LockDuration>", "<DuplicateDetectionHistoryTimeWindow>P25D</DuplicateDetectionHistoryTimeWindow>"
	const tooLong = "The supplied lock time exceeds the allowed maximum of '5' minutes. To know more visit https://aka.ms/sbResourceMgrExceptions. " +
		"&#xD;\nParameter name: LockDuration&#xD;\nActual value was 25.00:00:00."
	for _, c := range []struct{ path, kind, elements, ifMatch, want string }{
		{"/q", "QueueDescription", lock, "", "SubCode=40000. " + tooLong},
		{"/t/Subscriptions/none", "SubscriptionDescription", lock, "*", tooLong}, // before it is looked for
		{"/q", "TopicDescription", window, "", "SubCode=40000. The value supplied must be between 00:00:20 and 7.00:00:00.&#xD;\n" +
			"Parameter name: DuplicateDetectionHistoryTimeWindow&#xD;\nActual value was 25.00:00:00."},
		{"/q", "QueueDescription", "<AutoDeleteOnIdle>PT1.5S</AutoDeleteOnIdle>", "", "SubCode=40000. The value supplied must be between 00:05:00 and " +
			"10675199.02:48:05.4775807.&#xD;\nParameter name: AutoDeleteOnIdle&#xD;\nActual value was 00:00:01.5000000."},
		{"/q", "QueueDescription", "<MaxSizeInMegabytes>6144</MaxSizeInMegabytes>", "", "SubCode=40000. The value supplied must be between 1024 and 5120.&#xD;\n" +
			"Parameter name: MaxSizeInMegabytes&#xD;\nActual value was 6144."},
		{"/fwd", "QueueDescription", "<RequiresSession>true</RequiresSession>", "*", "SubCode=40000. The value for the RequiresSession property of an existing " +
			"Queue cannot be changed. To know more visit https://aka.ms/sbResourceMgrExceptions. ."},
	} {
		answer := must(t, h, 400, "PUT", c.path+version, describe(c.kind, c.elements), "If-Match", c.ifMatch)
		if !strings.Contains(answer, "<Detail>"+c.want+" TrackingId:") {
			t.Errorf("%s with %s =\n%s\nwant\n%s", c.path, c.elements, answer, c.want)
		}
	}
}

func TestStatedWordsComeBack(t *testing.T) {
	_, h := setup(t)
	const centuries = "<DefaultMessageTimeToLive>P10675199DT2H48M5.477539S</DefaultMessageTimeToLive>"
	must(t, h, 201, "PUT", "/q"+version, describe("QueueDescription", centuries+"<SupportOrdering>false</SupportOrdering>"))
	must(t, h, 201, "PUT", "/parts"+version, describe("QueueDescription", "<EnablePartitioning>true</EnablePartitioning>"))
	must(t, h, 201, "PUT", "/ordered"+version, describe("TopicDescription", "<SupportOrdering>true</SupportOrdering><EnablePartitioning>true</EnablePartitioning>"))
	must(t, h, 201, "PUT", "/t"+version, describe("TopicDescription", "<FilteringMessagesBeforePublishing>true</FilteringMessagesBeforePublishing>"))
	for path, want := range map[string]string{
		"/q": centuries, "/t": "<FilteringMessagesBeforePublishing>true<", "/parts": "<SupportOrdering>false<", "/ordered": "<SupportOrdering>true<",
	} {
		if answer := must(t, h, 200, "GET", path+version, ""); !strings.Contains(answer, want) || path == "/q" && element(t, answer, "SupportOrdering") != "false" {
			t.Errorf("GET %s = %s\nwant %s", path, answer, want)
		}
	}
}
