// SPDX-License-Identifier: Apache-2.0

package adminapi_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/broker/adminapi"
	"overdue/internal/broker/message"
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
			`<MaxSizeInMegabytes>6144</MaxSizeInMegabytes>`, `<MaxSizeInMegabytes>0</MaxSizeInMegabytes>`,
			`<MaxSizeInMegabytes>16384</MaxSizeInMegabytes><EnablePartitioning>true</EnablePartitioning>`, `<MaxSizeInMegabytes>99999999999999999999</MaxSizeInMegabytes>`,
			`<RequiresSession>maybe</RequiresSession>`,
			`<DefaultMessageTimeToLive>PT0.999S</DefaultMessageTimeToLive>`, `<DefaultMessageTimeToLive>PT0S</DefaultMessageTimeToLive>`,
			`<DuplicateDetectionHistoryTimeWindow>PT19S</DuplicateDetectionHistoryTimeWindow>`,
			`<DuplicateDetectionHistoryTimeWindow>P7DT1S</DuplicateDetectionHistoryTimeWindow>`,
			`<MaxDeliveryCount>0</MaxDeliveryCount>`, `<MaxDeliveryCount>2147483648</MaxDeliveryCount>`, `<MaxDeliveryCount>x</MaxDeliveryCount>`,
			`<AutoDeleteOnIdle>PT4M59S</AutoDeleteOnIdle>`, `<Status>Deleting</Status>`,
			`<UserMetadata>` + strings.Repeat("é", 1025) + `</UserMetadata>`,
			`<ForwardTo>none</ForwardTo>`, `<ForwardTo>sb://other.test/fwd</ForwardTo>`, `<ForwardTo>t/Subscriptions/s</ForwardTo>`, `<ForwardTo>new</ForwardTo>`,
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
			`<Filter i:type="NewFilter"/>`, `<Filter i:type="SqlFilter"/><Action i:type="NewAction"/>`,
			`<Filter i:type="SqlFilter"/>`, `<Filter><SqlExpression>1=1</SqlExpression></Filter>`, `<Filter i:type="SqlFilter"><SqlExpression> </SqlExpression></Filter>`,
			`<Filter i:type="SqlFilter"><SqlExpression>` + strings.Repeat("1", 1025) + `</SqlExpression></Filter>`,
			`<Action i:type="SqlRuleAction"/>`, `<Action><SqlExpression>SET a = 1</SqlExpression></Action>`,
			property("int", "2147483648"), property("int", "1.5"), property("unsignedByte", "-1"), property("boolean", "perhaps"),
			property("double", "x"), property("dateTime", "today"), property("duration", "1h"), property("hexBinary", "78"), property("base64Binary", "?"),
			property("long", "9223372036854775808"), property("short", "32768"), property("unsignedLong", "-1"), property("decimal", "1e40"),
			property("decimal", "NaN"), property("guid", "x"), property("char", "-1"), property("boolean", "t"), property("float", "1e300"),
			sqlRule("SqlFilter", "a = 1", `<RequiresPreprocessing>perhaps</RequiresPreprocessing>`), property("", "x"),
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
			if status != 400 || !strings.Contains(answer, "<Error><Code>400</Code><Detail>") {
				t.Errorf("%s with %.100s = %d %s, want 400", kind, e, status, answer)
			}
		}
	}
}

func sqlRule(kind, expression, further string) string {
	name := map[bool]string{true: "Filter", false: "Action"}[kind == "SqlFilter"]
	return `<` + name + ` i:type="` + kind + `"><SqlExpression>` + expression + `</SqlExpression>` + further + `</` + name + `>`
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
	const ours, others = "http://schemas.microsoft.com/2003/10/Serialization/", "http://www.w3.org/2001/XMLSchema"
	for _, c := range []struct{ kind, namespace, value, want string }{
		{"string", others, " a b ", " a b "},
		{"string", others, "", ""},
		{"int", others, "-2147483648", "-2147483648"},
		{"byte", others, "-128", "-128"},
		{"unsignedByte", others, "255", "255"},
		{"short", others, "-32768", "-32768"},
		{"unsignedShort", others, "65535", "65535"},
		{"unsignedInt", others, "4294967295", "4294967295"},
		{"long", others, "3", "3"},
		{"long", others, "-9223372036854775808", "-9223372036854775808"},
		{"unsignedLong", others, "18446744073709551615", "18446744073709551615"},
		{"boolean", others, "1", "true"},
		{"float", others, "0.1", "0.1"},
		{"double", others, "3", "3"},
		{"double", others, "1e300", "1e+300"},
		{"double", others, "-INF", "-INF"},
		{"double", others, "NaN", "NaN"},
		{"decimal", others, "0.10", "0.10"},
		{"decimal", others, "-79228162514264337593543950335", "-79228162514264337593543950335"},
		{"dateTime", others, "2001-01-01T01:02:03.0000005", "2001-01-01T01:02:03.0000005"}, // a test of Python compares
		{"dateTime", others, "2001-01-01T01:02:03Z", "2001-01-01T01:02:03Z"},
		{"dateTime", others, "2001-01-01T01:02:03+01:00", "2001-01-01T00:02:03Z"},
		{"duration", ours, "PT26H", "P1DT2H"},
		{"guid", ours, "01020304-0506-0708-090a-0b0c0d0e0f10", "01020304-0506-0708-090a-0b0c0d0e0f10"},
		{"char", ours, "65", "65"},
		{"char", ours, "A", "65"}, // .NET writes the number
		{"anyURI", others, "http://x/?a&amp;b", "http://x/?a&amp;b"},
	} {
		answer := must(t, h, 201-len(header)/2, "PUT", place, describe("RuleDescription", property(c.kind, c.value)), header...)
		want := `<Value i:type="d6p1:` + c.kind + `" xmlns:d6p1="` + c.namespace + `">` + c.want + `</Value>`
		if !strings.Contains(answer, want) {
			t.Errorf("%s %q came back as\n%s\nwant %s", c.kind, c.value, answer, want)
		}
		header = []string{"If-Match", "*"} // from the second on it is an update, which is 200
	}
}

// A rule over AMQP is read here with its types, and the other way round.
func TestTypesOfPropertiesAreThoseOfAMQP(t *testing.T) {
	n, h := setup(t)
	scene(t, n)
	const place = "/t/Subscriptions/s/Rules/r" + version
	described := func(name amqp.Symbol, v any) any { return amqp.Described{Descriptor: name, Value: v} }
	for _, c := range []struct {
		value      any
		kind, text string
		back       any // what it is when it was read here, nil for the same
	}{
		{int8(-1), "byte", "-1", nil}, {int16(-1), "short", "-1", nil}, {int32(1), "int", "1", nil}, {int64(1), "long", "1", nil},
		{uint8(1), "unsignedByte", "1", nil}, {uint16(1), "unsignedShort", "1", nil}, {uint32(1), "unsignedInt", "1", nil},
		{uint64(1), "unsignedLong", "1", nil}, {7, "int", "7", int32(7)}, {true, "boolean", "true", nil}, {"x", "string", "x", nil},
		{amqp.Symbol("x"), "string", "x", "x"}, {float32(0.1), "float", "0.1", nil}, {0.1, "double", "0.1", nil}, {amqp.Char('A'), "char", "65", nil},
		{amqp.Decimal128{0: 0x0c, 1: 0x3e, 15: 125}, "decimal", "12.5", nil},
		{amqp.Decimal32{0: 0x32, 3: 125}, "decimal", "12.5", amqp.Decimal128{0: 0x0c, 1: 0x3e, 15: 125}},
		{amqp.UUID{15: 1}, "guid", "00000000-0000-0000-0000-000000000001", nil},
		{amqp.Timestamp(1500), "dateTime", "1970-01-01T00:00:01.5Z", time.UnixMilli(1500).UTC()},
		{described(amqp.TypeDateTimeOffset, int64(amqp.EpochTicks+1)), "dateTime", "1970-01-01T00:00:00.0000001Z", time.Unix(0, 100).UTC()},
		{described(amqp.TypeTimeSpan, int64(10_000_000)), "duration", "PT1S", time.Second},
		{described(message.TypeURI, "http://x"), "anyURI", "http://x", nil}, {[]byte("x"), "base64Binary", "eA==", nil},
	} {
		filter := broker.Filter{Correlation: &broker.CorrelationFilter{Properties: broker.Values{{Key: "k", Value: c.value}}}}
		if _, err := n.CreateRule("t", "s", broker.RuleConfig{Name: "r", Filter: filter}); err != nil {
			t.Fatal(err)
		}
		if answer := must(t, h, 200, "GET", place, ""); !strings.Contains(answer, `i:type="d6p1:`+c.kind+`"`) || !strings.Contains(answer, `">`+c.text+`</Value>`) {
			t.Errorf("%T %v is read as\n%s\nwant a %s %s", c.value, c.value, answer, c.kind, c.text)
		}
		must(t, h, 200, "PUT", place, describe("RuleDescription", property(c.kind, c.text)), "If-Match", "*")
		r, err := n.RuleInfo("t", "s", "r")
		if err != nil {
			t.Fatal(err)
		}
		want := c.value
		if c.back != nil {
			want = c.back
		}
		if diff := cmp.Diff(want, r.Config.Filter.Correlation.Properties[0].Value); diff != "" {
			t.Errorf("a %s %s is (-want +got):\n%s", c.kind, c.text, diff)
		}
		if err := n.DeleteRule("t", "s", "r"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAPropertyThatIsNullComesBack(t *testing.T) {
	n, h := setup(t)
	scene(t, n)
	const null = `<KeyValueOfstringanyType><Key>k</Key><Value i:nil="true"></Value></KeyValueOfstringanyType>`
	body := describe("RuleDescription", `<Filter i:type="CorrelationFilter"><Properties>`+null+`</Properties></Filter>`)
	if answer := must(t, h, 201, "PUT", "/t/Subscriptions/s/Rules/r"+version, body); !strings.Contains(answer, null) {
		t.Errorf("a null came back as\n%s", answer)
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
