// SPDX-License-Identifier: Apache-2.0

package adminapi_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/broker/adminapi"
)

func TestValuesBeyondTheBoundsOfTheServiceAreRefused(t *testing.T) {
	n, h := setup(t)
	scene(t, n)
	rule := func(in string) string {
		return `<AuthorizationRules><AuthorizationRule>` + in + `</AuthorizationRule></AuthorizationRules>`
	}
	const send = `<Rights><AccessRights>Send</AccessRights></Rights>`
	for kind, elements := range map[string][]string{
		"QueueDescription": {
			`<LockDuration>PT5M0.1S</LockDuration>`, `<LockDuration>PT0S</LockDuration>`, `<LockDuration>-PT5S</LockDuration>`,
			`<LockDuration>5</LockDuration>`, `<LockDuration></LockDuration>`,
			`<MaxSizeInMegabytes>100</MaxSizeInMegabytes>`, `<MaxSizeInMegabytes>1500</MaxSizeInMegabytes>`,
			`<MaxSizeInMegabytes>82944</MaxSizeInMegabytes>`, `<MaxSizeInMegabytes>99999999999999999999</MaxSizeInMegabytes>`,
			`<RequiresSession>maybe</RequiresSession>`,
			`<DefaultMessageTimeToLive>PT0.999S</DefaultMessageTimeToLive>`, `<DefaultMessageTimeToLive>PT0S</DefaultMessageTimeToLive>`,
			`<DuplicateDetectionHistoryTimeWindow>PT19S</DuplicateDetectionHistoryTimeWindow>`,
			`<DuplicateDetectionHistoryTimeWindow>P7DT1S</DuplicateDetectionHistoryTimeWindow>`,
			`<MaxDeliveryCount>0</MaxDeliveryCount>`, `<MaxDeliveryCount>2001</MaxDeliveryCount>`, `<MaxDeliveryCount>x</MaxDeliveryCount>`,
			`<AutoDeleteOnIdle>PT4M59S</AutoDeleteOnIdle>`, `<Status>Deleting</Status>`,
			`<UserMetadata>` + strings.Repeat("é", 1025) + `</UserMetadata>`,
			`<ForwardTo>none</ForwardTo>`, `<ForwardTo>t/Subscriptions/s</ForwardTo>`, `<ForwardTo>new</ForwardTo>`,
			`<ForwardDeadLetteredMessagesTo>sb://overdue.test/none</ForwardDeadLetteredMessagesTo>`,
			`<MaxMessageSizeInKilobytes>0</MaxMessageSizeInKilobytes>`, `<MaxMessageSizeInKilobytes>102401</MaxMessageSizeInKilobytes>`,
			rule(send), rule(`<KeyName>k</KeyName>`), rule(`<KeyName>k</KeyName><Rights><AccessRights>Own</AccessRights></Rights>`),
			rule(`<KeyName>k</KeyName><Rights><AccessRights>Manage</AccessRights></Rights>`),
			rule(`<KeyName>k</KeyName>` + send + `<PrimaryKey>` + strings.Repeat("k", 257) + `</PrimaryKey>`),
			rule(`<KeyName>k</KeyName>` + send + `<CreatedTime>today</CreatedTime>`),
			strings.Replace(rule(`<KeyName>k</KeyName>`+send), `</AuthorizationRule>`,
				`</AuthorizationRule><AuthorizationRule><KeyName>k</KeyName>`+send+`</AuthorizationRule>`, 1),
			`<AuthorizationRules>` + strings.Repeat(`<AuthorizationRule/>`, 13) + `</AuthorizationRules>`,
		},
		"TopicDescription": {
			`<DefaultMessageTimeToLive>PT0.5S</DefaultMessageTimeToLive>`, `<SupportOrdering>2</SupportOrdering>`,
			`<MaxSizeInMegabytes>1</MaxSizeInMegabytes>`,
		},
		"SubscriptionDescription": {
			`<LockDuration>PT6M</LockDuration>`, `<MaxDeliveryCount>-1</MaxDeliveryCount>`, `<ForwardTo>none</ForwardTo>`,
			`<DefaultRuleDescription><Filter/><Name>r</Name></DefaultRuleDescription>`,
		},
		"RuleDescription": {
			`<Filter i:type="SqlFilter"/>`, `<Filter><SqlExpression>1=1</SqlExpression></Filter>`, `<Filter i:type="SqlFilter"><SqlExpression> </SqlExpression></Filter>`,
			`<Filter i:type="SqlFilter"><SqlExpression>` + strings.Repeat("1", 1025) + `</SqlExpression></Filter>`,
			`<Action i:type="SqlRuleAction"/>`, `<Action><SqlExpression>SET a = 1</SqlExpression></Action>`,
			property("int", "2147483648"), property("int", "1.5"), property("unsignedByte", "-1"), property("boolean", "perhaps"),
			property("double", "x"), property("dateTime", "today"), property("duration", "1h"), property("base64Binary", "eA=="), property("", "x"),
			`<Filter i:type="CorrelationFilter"><Properties><KeyValueOfstringanyType><Key>k</Key></KeyValueOfstringanyType></Properties></Filter>`,
			`<Filter i:type="CorrelationFilter"><Properties><KeyValueOfstringanyType><Key/><Value i:type="x:string">v</Value></KeyValueOfstringanyType></Properties></Filter>`,
		},
	} {
		for _, e := range elements {
			path := map[string]string{
				"QueueDescription": "/new", "TopicDescription": "/new",
				"SubscriptionDescription": "/t/Subscriptions/new", "RuleDescription": "/t/Subscriptions/s/Rules/new",
			}[kind]
			status, answer := ask(h, "PUT", path+version, describe(kind, e))
			if status != 400 || !strings.Contains(answer, "<Error><Code>400</Code><Detail>SubCode=40000. Bad Request. ") {
				t.Errorf("%s with %.100s = %d %s, want 400", kind, e, status, answer)
			}
		}
	}
}

func property(kind, value string) string {
	return `<Filter i:type="CorrelationFilter"><Properties><KeyValueOfstringanyType><Key>k</Key><Value i:type="x:` + kind + `">` + value +
		`</Value></KeyValueOfstringanyType></Properties></Filter>`
}

func TestAPropertyComesBackWithItsType(t *testing.T) {
	n, h := setup(t)
	scene(t, n)
	const place = "/t/Subscriptions/s/Rules/r" + version
	header := []string(nil)
	for _, c := range []struct{ kind, value, wantKind, want string }{
		{"string", " a b ", "string", " a b "},
		{"string", "", "string", ""},
		{"int", "-2147483648", "int", "-2147483648"},
		{"byte", "-128", "int", "-128"},
		{"long", "2147483647", "int", "2147483647"}, // SDKs that know no long can read it
		{"long", "2147483648", "long", "2147483648"},
		{"unsignedLong", "9223372036854775807", "long", "9223372036854775807"},
		{"boolean", "1", "boolean", "true"},
		{"double", "1e300", "double", "1e+300"},
		{"double", "-INF", "double", "-INF"},
		{"double", "NaN", "double", "NaN"},
		{"decimal", "0.10", "double", "0.1"},
		{"dateTime", "2001-01-01T01:02:03.0000005", "dateTime", "2001-01-01T01:02:03.0000005"}, // a test of Python compares
		{"dateTime", "2001-01-01T01:02:03Z", "dateTime", "2001-01-01T01:02:03Z"},
		{"dateTime", "2001-01-01T01:02:03+01:00", "dateTime", "2001-01-01T00:02:03Z"},
		{"duration", "PT26H", "duration", "P1DT2H"},
	} {
		answer := must(t, h, 201-len(header)/2, "PUT", place, describe("RuleDescription", property(c.kind, c.value)), header...)
		want := `<Value i:type="d6p1:` + c.wantKind + `" xmlns:d6p1="http://www.w3.org/2001/XMLSchema">` + c.want + `</Value>`
		if !strings.Contains(answer, want) {
			t.Errorf("%s %q came back as\n%s\nwant %s", c.kind, c.value, answer, want)
		}
		header = []string{"If-Match", "*"} // from the second on it is an update, which is 200
	}
}

func TestBodiesThatAreNoneAreRefused(t *testing.T) {
	n, h := setup(t)
	scene(t, n)
	for name, body := range map[string]string{
		"nothing":                     "",
		"no XML":                      "{}",
		"an end without a beginning":  "</entry>",
		"a beginning without an end":  "<entry><content>",
		"two documents":               queue + queue,
		"text behind the document":    queue + "x",
		"another document":            "<feed/>",
		"an entry without content":    `<entry xmlns="http://www.w3.org/2005/Atom"/>`,
		"content without description": `<entry xmlns="http://www.w3.org/2005/Atom"><content/></entry>`,
		"two descriptions":            `<entry><content><QueueDescription/><QueueDescription/></content></entry>`,
		"what is no entity":           describe("NamespaceInfo", ""),
		"what belongs elsewhere":      describe("RuleDescription", ""),
		"a document type":             `<!DOCTYPE entry [<!ENTITY x SYSTEM "file:///etc/passwd">]>` + queue,
		"an entity of its own":        describe("QueueDescription", "<UserMetadata>&x;</UserMetadata>"),
		"another encoding":            `<?xml version="1.0" encoding="UTF-7"?>` + queue,
		"bytes that are no UTF-8":     describe("QueueDescription", "<UserMetadata>\xff</UserMetadata>"),
		"deep nesting":                describe("QueueDescription", strings.Repeat("<a>", 40)+strings.Repeat("</a>", 40)),
		"many elements":               describe("QueueDescription", strings.Repeat("<a/>", 10_000)),
		"many attributes":             describe("QueueDescription", "<a "+attributes(17)+"/>"),
	} {
		if status, answer := ask(h, "PUT", "/new"+version, body); status != 400 {
			t.Errorf("%s = %d, want 400\n%s", name, status, answer)
		}
	}
	big := describe("QueueDescription", "<UserMetadata>"+strings.Repeat("x", 256<<10)+"</UserMetadata>")
	must(t, h, 413, "PUT", "/new"+version, big)
	if got := len(n.Queues()); got != 1 {
		t.Errorf("%d queues, want the one from before", got)
	}
}

func attributes(n int) string {
	var s strings.Builder
	for i := range n {
		fmt.Fprintf(&s, ` xmlns:p%d="urn:x"`, i)
	}
	return s.String()
}

func TestAQueueBeyondTheBoundsCanBeWrittenBack(t *testing.T) {
	n, h := setup(t)
	made := broker.QueueConfig{Name: "q", LockDuration: 10 * time.Minute, MaxDeliveryCount: 9999, AutoDeleteOnIdle: time.Minute, DefaultMessageTimeToLive: time.Second / 2}
	if _, err := n.CreateQueue(made); err != nil {
		t.Fatal(err)
	}
	read := must(t, h, 200, "GET", "/q"+version, "")
	must(t, h, 200, "PUT", "/q"+version, read, "If-Match", "*")
	q, err := n.QueueInfo("q")
	if err != nil {
		t.Fatal(err)
	}
	if c := q.Config; c.LockDuration != made.LockDuration || c.MaxDeliveryCount != made.MaxDeliveryCount || c.MaxSize != 0 ||
		c.AutoDeleteOnIdle != made.AutoDeleteOnIdle || c.DefaultMessageTimeToLive != made.DefaultMessageTimeToLive {
		t.Errorf("written back as it was read = %+v, want %+v", c, made)
	}
	must(t, h, 400, "PUT", "/q"+version, describe("QueueDescription", "<LockDuration>PT11M</LockDuration>"), "If-Match", "*")
}

func TestKeysThatARuleDoesNotBringAreMade(t *testing.T) {
	_, h := setup(t)
	answer := must(t, h, 201, "PUT", "/q"+version, describe("QueueDescription",
		`<AuthorizationRules><AuthorizationRule><Rights><AccessRights>Send</AccessRights></Rights><KeyName>k</KeyName></AuthorizationRule></AuthorizationRules>`))
	primary, secondary := element(t, answer, "PrimaryKey"), element(t, answer, "SecondaryKey")
	if len(primary) != 44 || len(secondary) != 44 || primary == secondary {
		t.Errorf("keys = %q and %q, want two of 32 bytes in base64", primary, secondary)
	}
}

// asked notes what an authorizer is asked, and lets nobody in.
type asked struct {
	path  string
	right adminapi.Right
}

func (a *asked) Authorize(_ *http.Request, path string, right adminapi.Right) error {
	a.path, a.right = path, right
	return errors.New("40103: Invalid authorization token signature")
}

func TestTheAuthorizerDecides(t *testing.T) {
	var a asked
	n, h := setup(t, func(_ *broker.Config, o *adminapi.Options) { o.Authorizer = &a })
	scene(t, n)
	for _, c := range []struct {
		method, target, path string
		right                adminapi.Right
	}{
		{"GET", "/fwd", "fwd", adminapi.Read},
		{"GET", "/none", "none", adminapi.Read}, // a bad token is refused here too
		{"GET", "/$Resources/Queues", "", adminapi.Read},
		{"GET", "/$namespaceinfo", "", adminapi.Read},
		{"PUT", "/fwd", "fwd", adminapi.Write},
		{"DELETE", "/a/b", "a/b", adminapi.Delete},
		{"GET", "/t/subscriptions", "t", adminapi.Read},
		{"PUT", "/t/subscriptions/s", "t/Subscriptions/s", adminapi.Write},
		{"DELETE", "/t/subscriptions/s/rules/r", "t/Subscriptions/s", adminapi.Delete},
		{"GET", "/t/subscriptions/s/rules/r", "t/Subscriptions/s", adminapi.Read},
	} {
		answer := must(t, h, 401, c.method, c.target+version, queue)
		if a != (asked{c.path, c.right}) {
			t.Errorf("%s %s asked for %+v, want %v on %q", c.method, c.target, a, c.right, c.path)
		}
		if !strings.Contains(answer, "40103: Invalid authorization token signature") {
			t.Errorf("%s %s = %s, want the words of the authorizer", c.method, c.target, answer)
		}
	}
}
