// SPDX-License-Identifier: Apache-2.0

package entityfile

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/broker"
)

// odd is a namespace with settings that no file can hold.
func odd() *broker.NamespaceSetup {
	empty, hello := "", "hello"
	return &broker.NamespaceSetup{
		Queues: []broker.QueueConfig{{
			Name:               "orders",
			LockDuration:       90 * time.Second,
			ForwardTo:          "sb://contoso.servicebus.windows.net/events",
			MaxMessageSize:     100 << 20,
			Status:             broker.Disabled,
			UserMetadata:       "of\nthe shop",
			EnableExpress:      true,
			AuthorizationRules: []broker.AuthorizationRule{{KeyName: "k", PrimaryKey: "hidden"}},
		}},
		Topics: []broker.TopicSetup{{
			TopicConfig: broker.TopicConfig{Name: "events"},
			Subscriptions: []broker.SubscriptionSetup{
				{
					SubscriptionConfig: broker.SubscriptionConfig{Name: "plain"},
					Rules:              []broker.RuleConfig{{Name: broker.DefaultRuleName, Filter: broker.Filter{True: true}}},
				},
				{SubscriptionConfig: broker.SubscriptionConfig{Name: "deaf"}},
				{SubscriptionConfig: broker.SubscriptionConfig{Name: "odd"}, Rules: []broker.RuleConfig{
					{Name: "parameter", Filter: broker.Filter{SQL: &broker.SQLFilter{
						Expression: "a = @p",
						Parameters: broker.Values{{Key: "@p", Value: int32(1)}},
					}}},
					{Name: "late", Filter: broker.Filter{Correlation: &broker.CorrelationFilter{
						Label: &hello, To: &empty, Properties: broker.Values{{Key: "wait", Value: time.Minute}, {Key: "on", Value: true}},
					}}},
					{Name: "never", Filter: broker.Filter{False: true}},
					{Name: "every", Action: broker.Action{SQL: "SET x = 1"}},
				}},
			},
		}},
	}
}

const oddYAML = `broker:
  queues:
    # a remark
    # not copied, as this file has no such setting: EnableExpress: true
    # not copied, as this file has no such setting: MaxMessageSizeInKilobytes: 102400
    # not copied, as this file has no such setting: AuthorizationRules: 1
    # not copied, as this file has no such setting: Status: "Disabled"
    # not copied, as this file has no such setting: UserMetadata: "of\nthe shop"
    - name: orders
      lockDuration: 1m30s
      forwardTo: events
  topics:
    - name: events
      subscriptions:
        - name: plain
        - name: deaf
          rules:
            # this subscription has no rule and gets nothing, as with this one
            - name: nothing
              sql: 1=0
        - name: odd
          rules:
            # the filter of rule "parameter" has the parameter @p, which a file cannot set
            - name: parameter
              sql: a = @p
            # rule "late" wants an empty To, which a file cannot say
            # rule "late" wants the property "wait" to have a value of the type time.Duration, which a file cannot hold
            - name: late
              correlation:
                subject: hello
                properties:
                  "on": true
            - name: never
              sql: 1=0
            - name: every
              action: SET x = 1
`

func TestWhatAConfigurationCannotHoldIsAComment(t *testing.T) {
	var b strings.Builder
	if err := YAML(&b, odd(), Remarks{"orders": {"a\n remark"}}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(oddYAML, "\n"), strings.Split(b.String(), "\n")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestWhatConfigJSONCannotHoldIsListed(t *testing.T) {
	var b strings.Builder
	left, err := Emulator(&b, odd(), Remarks{"orders": {"a remark"}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{
		"orders: a remark",
		"orders: not copied, as Config.json has no such setting: EnableExpress: true",
		"orders: not copied, as Config.json has no such setting: MaxMessageSizeInKilobytes: 102400",
		"orders: not copied, as Config.json has no such setting: AuthorizationRules: 1",
		`orders: not copied, as Config.json has no such setting: Status: "Disabled"`,
		`orders: not copied, as Config.json has no such setting: UserMetadata: "of\nthe shop"`,
		"events/Subscriptions/deaf: this subscription has no rule and gets nothing, as with this one",
		`events/Subscriptions/odd: the filter of rule "parameter" has the parameter @p, which a file cannot set`,
		`events/Subscriptions/odd: rule "late" wants an empty To, which a file cannot say`,
		`events/Subscriptions/odd: rule "late" wants the property "wait" to have a value of the type time.Duration, which a file cannot hold`,
	}, left); diff != "" {
		t.Errorf("settings that are left out (-want +got):\n%s", diff)
	}
	if strings.Contains(b.String(), "hidden") || !json.Valid([]byte(b.String())) {
		t.Errorf("the file has a key, or is no JSON:\n%s", b.String())
	}
	for _, want := range []string{`"LockDuration": "PT1M30S"`, `"ForwardTo": "events"`, `"DefaultMessageTimeToLive": "P10675199DT2H48M5.4775807S"`,
		`"SqlExpression": "1=1"`, `"Label": "hello"`, `"FilterType": "Correlation"`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the file lacks %s:\n%s", want, b.String())
		}
	}
}

func TestAnEmptyNamespaceIsAFileToo(t *testing.T) {
	var b strings.Builder
	if err := YAML(&b, &broker.NamespaceSetup{}, nil); err != nil || b.String() != "broker: {}\n" {
		t.Errorf("YAML = %q, %v", b.String(), err)
	}
}
