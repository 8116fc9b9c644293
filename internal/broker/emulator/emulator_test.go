// SPDX-License-Identifier: Apache-2.0

package emulator

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
	want := &Config{
		Namespace: "sbemulatorns",
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
		Warnings: []string{`line 12: "AutoDeleteOnIdle" is not a property that the emulator knows here`},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Parse (-want +got):\n%s", diff)
	}
	b, err := broker.New(broker.Config{Queues: got.Queues, Topics: got.Topics})
	if err != nil {
		t.Fatalf("the broker does not take it: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

func TestMistakesAreNamed(t *testing.T) {
	wrap := func(queues string) string {
		return `{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns",` + "\n" + `"Queues": [` + queues + `]}]}}`
	}
	for text, want := range map[string]string{
		"":                         "line 1: this is not JSON",
		"{\n\n\"UserConfig\" 1}":   "line 3: this is not JSON",
		"{} {}":                    "line 1: this is not JSON",
		"{}":                       "no UserConfig.Namespaces",
		`{"UserConfig": {}}`:       "no UserConfig.Namespaces",
		wrap(`{"Properties": {}}`): "queue has no Name",
		wrap(`{"Name": "q"}]}, {"Name": "b", "Queues": [`):                                                                                                               "2 namespaces",
		wrap("\n" + `{"Name": "q", "Properties": {"LockDuration": "1m"}}`):                                                                                               `line 3: "1m" is no duration`,
		wrap(`{"Name": "q", "Properties": {"LockDuration": "PT"}}`):                                                                                                      `"PT" is no duration`,
		wrap(`{"Name": "q", "Properties": {"MaxDeliveryCount": "three"}}`):                                                                                               "MaxDeliveryCount",
		`{"UserConfig": {"Namespaces": [{"Topics": [{"Name": "t", "Subscriptions": [{"Name": "s", "Rules": [{"Name": "r"}]}]}]}]}}`:                                      `rule "r" of subscription "s" of topic "t" has no Properties`,
		`{"UserConfig": {"Namespaces": [{"Topics": [{"Name": "t", "Subscriptions": [{"Name": "s", "Rules": [{"Name": "r", "Properties": {"FilterType": "Sql"}}]}]}]}]}}`: "FilterType has to be",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%s) = %v, want it to say %s", text, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	text, err := os.ReadFile("testdata/Config.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
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
