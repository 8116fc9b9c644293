// SPDX-License-Identifier: Apache-2.0

package emulator

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/unicode"

	"overdue/internal/broker"
)

func TestAConfigurationOfTheEmulatorIsReadAsItIs(t *testing.T) {
	text, err := os.ReadFile("testdata/Config.json")
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	subject := "subject1"
	contentType := "application/json"
	sub := func(name string, rules ...broker.RuleConfig) broker.SubscriptionSetup {
		return broker.SubscriptionSetup{SubscriptionConfig: broker.SubscriptionConfig{
			Name: name, LockDuration: time.Minute, MaxDeliveryCount: 3, DefaultMessageTimeToLive: time.Hour,
		}, Rules: rules}
	}
	want := broker.NamespaceSetup{
		Name: "sbemulatorns",
		Queues: []broker.QueueConfig{
			{
				Name: "queue.1", LockDuration: 5 * time.Second, MaxDeliveryCount: 7, DefaultMessageTimeToLive: 30 * time.Minute,
				DeadLetteringOnMessageExpiration: true, RequiresSession: true, RequiresDuplicateDetection: true,
				DuplicateDetectionHistoryTimeWindow: 5 * time.Minute, ForwardDeadLetteredMessagesTo: "queue.2",
			},
			{Name: "queue.2", LockDuration: time.Minute, MaxDeliveryCount: 3, DefaultMessageTimeToLive: time.Hour, DuplicateDetectionHistoryTimeWindow: 20 * time.Second},
		},
		Topics: []broker.TopicSetup{{
			TopicConfig: broker.TopicConfig{Name: "topic.1", DefaultMessageTimeToLive: time.Hour, DuplicateDetectionHistoryTimeWindow: 20 * time.Second},
			Subscriptions: []broker.SubscriptionSetup{
				sub("subscription.1", broker.RuleConfig{Name: "app-prop-filter-1", Filter: broker.Filter{
					Correlation: &broker.CorrelationFilter{ContentType: &contentType, Label: &subject, Properties: broker.ValuesOf(map[string]any{"prop1": "value1"})},
				}}),
				sub("subscription.2", broker.RuleConfig{Name: "sql", Filter: broker.Filter{SQL: &broker.SQLFilter{Expression: "sys.MessageId = '123456'"}},
					Action: broker.Action{SQL: "SET sys.To = 'Entity'"}}),
				sub("subscription.3"),
			},
		}},
	}
	all := &Config{
		Namespaces: []broker.NamespaceSetup{want},
		Forwards:   []Forward{{15, `ForwardDeadLetteredMessagesTo of queue "queue.1"`, "queue.2"}},
		Warnings:   []string{`line 12: "AutoDeleteOnIdle" is not a property that the emulator knows here`},
	}
	if diff := cmp.Diff(all, got); diff != "" {
		t.Errorf("Parse (-want +got):\n%s", diff)
	}
	b, err := broker.New(broker.Config{Queues: want.Queues, Topics: want.Topics})
	if err != nil {
		t.Fatalf("the broker does not take it: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// Samples and tests name these entities.
func TestTheDefaultHasTheEntitiesOfTheOfficialEmulator(t *testing.T) {
	got, err := Parse([]byte(Default))
	if err != nil {
		t.Fatal(err)
	}
	value := func(s string) *string { return &s }
	sub := func(name string, rules ...broker.RuleConfig) broker.SubscriptionSetup {
		return broker.SubscriptionSetup{SubscriptionConfig: broker.SubscriptionConfig{
			Name: name, LockDuration: time.Minute, MaxDeliveryCount: 3, DefaultMessageTimeToLive: time.Hour,
		}, Rules: rules}
	}
	want := broker.NamespaceSetup{
		Name: "sbemulatorns",
		Queues: []broker.QueueConfig{{
			Name: "queue.1", LockDuration: time.Minute, MaxDeliveryCount: 3, DefaultMessageTimeToLive: time.Hour, DuplicateDetectionHistoryTimeWindow: 20 * time.Second,
		}},
		Topics: []broker.TopicSetup{{
			TopicConfig: broker.TopicConfig{Name: "topic.1", DefaultMessageTimeToLive: time.Hour, DuplicateDetectionHistoryTimeWindow: 20 * time.Second},
			Subscriptions: []broker.SubscriptionSetup{
				sub("subscription.1", broker.RuleConfig{Name: "app-prop-filter-1", Filter: broker.Filter{Correlation: &broker.CorrelationFilter{
					ContentType: value("application/text"), CorrelationID: value("id1"), Label: value("subject1"), MessageID: value("msgid1"),
					ReplyTo: value("someQueue"), ReplyToSessionID: value("sessionId"), SessionID: value("session1"), To: value("xyz"),
				}}}),
				sub("subscription.2", broker.RuleConfig{Name: "user-prop-filter-1", Filter: broker.Filter{
					Correlation: &broker.CorrelationFilter{Properties: broker.ValuesOf(map[string]any{"prop1": "value1"})},
				}}),
				sub("subscription.3"),
				sub("subscription.4", broker.RuleConfig{
					Name:   "sql-filter-1",
					Filter: broker.Filter{SQL: &broker.SQLFilter{Expression: "sys.MessageId = '123456' AND userProp1 = 'value1'"}},
					Action: broker.Action{SQL: "SET sys.To = 'Entity'"},
				}),
			},
		}},
	}
	if diff := cmp.Diff(&Config{Namespaces: []broker.NamespaceSetup{want}}, got); diff != "" {
		t.Errorf("Parse(Default) (-want +got):\n%s", diff)
	}
}

// inQueue is a file with one queue, whose properties are the fourth line.
func inQueue(properties string) string {
	return `{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns",` + "\n" + `"Queues": [{"Name": "q",` + "\n" + `"Properties": {` + "\n" +
		properties + "\n}}\n]}]}}"
}

// inRule is a file with one rule, whose properties are the fourth line.
func inRule(properties string) string {
	return `{"UserConfig": {"Namespaces": [{"Topics": [{"Name": "t", "Subscriptions": [{"Name": "s", "Rules": [` + "\n" + `{"Name": "r", "Properties":` +
		"\n{\n" + properties + "\n}}]}]}]}]}}"
}

func TestMistakesAreNamedWithTheirLines(t *testing.T) {
	wrap := func(queues string) string {
		return `{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns",` + "\n" + `"Queues": [` + queues + `]}]}}`
	}
	const forever = "P10675199DT2H48M5.4775807S"
	for text, want := range map[string]string{
		"":                         "line 1: this is not JSON",
		"{\n\n\"UserConfig\" 1}":   "line 3: this is not JSON",
		"{} {}":                    "line 1: this is not JSON",
		"{}":                       "no UserConfig.Namespaces",
		`{"UserConfig": {}}`:       "no UserConfig.Namespaces",
		"{\n\"UserConfig\": []}":   "line 2: UserConfig of the file is no object",
		wrap(`{"Properties": {}}`): "line 2: a queue has no Name",
		wrap(`{"Name": "q"},` + "\n" + `{"Name": "Q"}`):                                                  `line 3: there is another queue "Q"`,
		wrap(`{"Name": "q"},` + "\n" + `"q"`):                                                            "line 3: a queue is no object",
		wrap(`{"Name":` + "\n" + `7}`):                                                                   "line 3: Name of a queue has to be a string",
		wrap("\n" + `{"Name": "a b"}`):                                                                   `line 3: queue "a b": the name`,
		inQueue(`"LockDuration": "1m"`):                                                                  `line 4: LockDuration of queue "q": "1m" is no duration`,
		inQueue(`"LockDuration": "PT"`):                                                                  `line 4: LockDuration of queue "q": "PT" is no duration`,
		inQueue(`"LockDuration": 60`):                                                                    `line 4: LockDuration of queue "q" has to be a duration`,
		inQueue(`"LockDuration": "PT6M"`):                                                                `line 4: LockDuration of queue "q" is PT6M; it has to be between PT0.001S and PT5M`,
		inQueue(`"LockDuration": "PT0S"`):                                                                `line 4: LockDuration of queue "q" is PT0S`,
		inQueue(`"LockDuration": "` + forever + `"`):                                                     `line 4: LockDuration of queue "q" is ` + forever,
		inQueue(`"DefaultMessageTimeToLive": "PT0S"`):                                                    `line 4: DefaultMessageTimeToLive of queue "q" is PT0S; it has to be between PT1S and ` + forever,
		inQueue(`"DuplicateDetectionHistoryTimeWindow": "PT19S"`):                                        `line 4: DuplicateDetectionHistoryTimeWindow of queue "q" is PT19S; it has to be between PT20S and P7D`,
		inQueue(`"DuplicateDetectionHistoryTimeWindow": "P8D"`):                                          `line 4: DuplicateDetectionHistoryTimeWindow of queue "q" is P8D`,
		inQueue(`"MaxDeliveryCount": "three"`):                                                           `line 4: MaxDeliveryCount of queue "q" has to be a number`,
		inQueue(`"MaxDeliveryCount": 0`):                                                                 `line 4: MaxDeliveryCount of queue "q" is 0`,
		inQueue(`"MaxDeliveryCount": 1.5`):                                                               `line 4: MaxDeliveryCount of queue "q" is 1.5`,
		inQueue(`"MaxDeliveryCount": 2147483648`):                                                        `line 4: MaxDeliveryCount of queue "q" is 2147483648`,
		inQueue(`"RequiresSession": "true"`):                                                             `line 4: RequiresSession of queue "q" has to be true or false`,
		inQueue(`"ForwardTo": "Q"`):                                                                      `line 2: queue "q": ForwardTo leads to itself`,
		inQueue(`"LockDuration": "PT6M",` + "\n" + `"MaxDeliveryCount": 0`):                              `line 5: MaxDeliveryCount`, // all of them are named
		inRule(`"FilterType": "Sql"`):                                                                    `line 3: rule "r" of subscription "s" of topic "t": FilterType has to be`,
		inRule(`"FilterType": "Sql", "SqlFilter": {"SqlExpression": "a ="}`):                             `line 4: topic "t", subscription "s": rule "r": the filter: at character 4`,
		inRule(`"FilterType": "Sql", "SqlFilter": {}`):                                                   `line 4: topic "t", subscription "s": rule "r": the filter`,
		inRule(`"FilterType": "Sql", "SqlFilter": {"SqlExpression": 1}`):                                 `line 4: SqlExpression of SqlFilter of rule "r" of subscription "s" of topic "t" has to be a string`,
		inRule(`"FilterType": "Correlation", "CorrelationFilter": {"Properties":` + "\n" + `{"a": {}}}`): `line 5: a of CorrelationFilter of rule "r"`,
		inRule(`"FilterType": "Sql", "SqlFilter": {"SqlExpression": "1=1"}, "Action": {"SqlExpression": "SET"}`):                                `line 4: topic "t", subscription "s": rule "r": the action`,
		`{"UserConfig": {"Namespaces": [{"Topics": [{"Name": "t", "Subscriptions": [` + "\n" + `{"Name": "s", "Rules": [{"Name": "r"}]}]}]}]}}`: `line 2: rule "r" of subscription "s" of topic "t" has no Properties`,
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%s)\n got %v\nwant %s", text, err, want)
		}
	}
}

func TestEachNamespaceHasItsEntities(t *testing.T) {
	c, err := Parse([]byte(`{"UserConfig": {"Namespaces": [
		{"Name": "first", "Queues": [{"Name": "q", "Properties": {"ForwardTo": "elsewhere"}}]},
		{"Name": "second", "Queues": [{"Name": "q"}, {"Name": "r", "Properties": {"ForwardTo": "q"}}], "Topics": [{"Name": "t"}]}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, n := range c.Namespaces {
		got = append(got, fmt.Sprint(n.Name, len(n.Queues), len(n.Topics)))
	}
	if diff := cmp.Diff([]string{"first1 0", "second2 1"}, got); diff != "" {
		t.Errorf("namespaces (-want +got):\n%s", diff)
	}
	if len(c.Forwards) != 1 || c.Forwards[0].To != "elsewhere" {
		t.Errorf("forwards = %v, want that of the first, whose target may be elsewhere", c.Forwards)
	}
	for others, want := range map[string]string{
		`{"Queues": []}`:                "line 2: a namespace after the first has no Name",
		`{"Name": "A", "Queues": []}`:   `line 2: there is another namespace "A"`,
		`{"Name": "b", "Queues": [{}]}`: "line 2: a queue has no Name",
		`{"Name": "b", "Queues": [{"Name": "q"}], "Topics": [{"Name": "Q"}]}`:                            "line 2: broker: entity exists: Q",
		`{"Name": "b", "Queues": [` + "\n" + `{"Name": "q", "Properties": {"ForwardTo": "elsewhere"}}]}`: `line 3: ForwardTo of queue "q": namespace "b" has no queue or topic "elsewhere"`,
		`{"Name": "` + strings.Repeat("b", 257) + `"}`:                                                   "line 2: broker: no namespace can be called",
	} {
		_, err := Parse([]byte(`{"UserConfig": {"Namespaces": [{"Name": "a"},` + "\n" + others + "]}}"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse of another namespace %s\n got %v\nwant %s", others, err, want)
		}
	}
}

// Never is the longest TimeSpan of .NET, what other languages make of it, and all
// that is longer.
func TestNeverIsReadInAllItsSpellings(t *testing.T) {
	for _, never := range []string{"P10675199DT2H48M5.4775807S", "P10675199DT2H48M5.477539S", "P10675199DT2H48M5.477S", "P10675199DT2H48M5S", "P10675199D", "P29247Y"} {
		c, err := Parse([]byte(inQueue(`"DefaultMessageTimeToLive": "` + never + `"`)))
		if err != nil || c.Namespaces[0].Queues[0].DefaultMessageTimeToLive != 0 {
			t.Errorf("a time to live of %s = %v, want none", never, err)
		}
	}
}

func TestAllThatHasNoEffectIsNamed(t *testing.T) {
	c, err := Parse([]byte(`{"$schema": "x", "UserConfig": {"Logging": {"Type": "File"}, "Namespaces": [{"Name": "n", "Region": "x",
		"Queues": [{"Name": "a", "Properties": {"MaxSizeInMegabytes": 1024, "LockDuration": "PT1M",
			"EnablePartitioning": false, "LockDuration": "PT2M"}},
			{"Name": "b", "Properties": {"AutoDeleteOnIdle": "PT1H"}, "Status": "Active"}],
		"Topics": [{"Name": "t", "Properties": {"SupportOrdering": true, "RequiresSession": false, "LockDuration": "PT1M"},
			"Subscriptions": [{"Name": "s", "Properties": {"RequiresDuplicateDetection": true},
				"Rules": [{"Name": "r", "Properties": {"FilterType": "Correlation",
					"CorrelationFilter": {"Subject": "placed", "properties": {"any": 1}}, "Actions": {}}}]}]}]}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range c.Warnings {
		w, _, _ := strings.Cut(strings.TrimPrefix(w, "line "), " is ")
		got = append(got, strings.ReplaceAll(w, `"`, ""))
	}
	want := []string{"1: $schema", "1: Region", "2: MaxSizeInMegabytes", "2: LockDuration", "3: EnablePartitioning", "4: AutoDeleteOnIdle", "4: Status",
		"5: SupportOrdering", "5: RequiresSession", "5: LockDuration", "6: RequiresDuplicateDetection", "8: Subject", "8: Actions"}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	if got := c.Namespaces[0].Queues[0].LockDuration; got != 2*time.Minute {
		t.Errorf("a property that is stated twice = %v, want the last value", got)
	}
	if diff := cmp.Diff(broker.Values{{Key: "any", Value: int64(1)}}, c.Namespaces[0].Topics[0].Subscriptions[0].Rules[0].Filter.Correlation.Properties); diff != "" {
		t.Errorf("properties (-want +got):\n%s", diff)
	}
}

// Editors on Windows write a mark at the beginning, or UTF-16, or both.
func TestAConfigurationIsReadInEveryEncodingOfUnicode(t *testing.T) {
	const text = "{\"UserConfig\": {\"Namespaces\": [{\"Queues\": [{\"Name\": \"q\",\n\"LockDuration\": 1}]}]}}"
	for name, e := range encodings {
		for text, want := range map[string]string{
			"// Größe\n" + text:                       `line 3: "LockDuration" is not a property`,
			strings.ReplaceAll(text, "\"Name\"", "7"): "line 1: this is not JSON",
		} {
			c, err := Parse(encode(t, e, text))
			got := fmt.Sprint(err)
			if err == nil {
				got = c.Warnings[0]
			}
			if !strings.HasPrefix(got, want) {
				t.Errorf("%s: %s, want %s", name, got, want)
			}
		}
	}
}

var encodings = map[string]encoding.Encoding{
	"UTF-8":                      unicode.UTF8,
	"UTF-8 with a mark":          unicode.UTF8BOM,
	"UTF-16, little":             unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM),
	"UTF-16, little with a mark": unicode.UTF16(unicode.LittleEndian, unicode.UseBOM),
	"UTF-16, big":                unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM),
	"UTF-16, big with a mark":    unicode.UTF16(unicode.BigEndian, unicode.UseBOM),
}

func encode(t testing.TB, e encoding.Encoding, text string) []byte {
	t.Helper()
	encoded, err := e.NewEncoder().String(text)
	if err != nil {
		t.Fatal(err)
	}
	return []byte(encoded)
}

func FuzzParse(f *testing.F) {
	text, err := os.ReadFile("testdata/Config.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, e := range encodings {
		f.Add(encode(f, e, string(text)))
	}
	f.Add([]byte("// nothing"))
	f.Add([]byte(`{"UserConfig": {"Namespaces": [{"Queues": [{"Name": "q",},],},],},}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := Parse(text)
		if (c == nil) != (err != nil) {
			t.Errorf("Parse = %v, %v", c, err)
		}
		var syntax *SyntaxError
		if errors.As(err, &syntax) && syntax.Line < 1 {
			t.Errorf("line %d of %v", syntax.Line, err)
		}
	})
}
