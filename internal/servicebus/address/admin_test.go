// SPDX-License-Identifier: Apache-2.0

package address

import (
	"strings"
	"testing"
)

func TestAPathOfTheAdministrationAPILeadsToOneTarget(t *testing.T) {
	for path, want := range map[string]Target{
		"":                          {Kind: Root},
		"orders":                    {Name: "orders"},
		"a/b/c":                     {Name: "a/b/c"},
		"$NamespaceInfo":            {Kind: NamespaceInfo},
		"$Resources/queues":         {Kind: QueueList},
		"$resources/Topics":         {Kind: TopicList},
		"$resources/others":         {Name: "$resources/others"},
		"t/Subscriptions":           {Kind: SubscriptionList, Name: "t"},
		"a/t/subscriptions":         {Kind: SubscriptionList, Name: "a/t"},
		"t/Subscriptions/s":         {Kind: SubscriptionTarget, Name: "t", Subscription: "s"},
		"t/SUBSCRIPTIONS/S/rules":   {Kind: RuleList, Name: "t", Subscription: "S"},
		"t/Subscriptions/s/Rules/r": {Kind: RuleTarget, Name: "t", Subscription: "s", Rule: "r"},
		"Subscriptions":             {Name: "Subscriptions"},
		"Subscriptions/s":           {Name: "Subscriptions/s"},
		"t/Rules/r":                 {Name: "t/Rules/r"},
		// Names that are words of the grammar.
		"Subscriptions/Subscriptions":             {Kind: SubscriptionList, Name: "Subscriptions"},
		"t/Subscriptions/Rules":                   {Kind: SubscriptionTarget, Name: "t", Subscription: "Rules"},
		"t/Subscriptions/Subscriptions":           {Kind: SubscriptionTarget, Name: "t", Subscription: "Subscriptions"},
		"t/Subscriptions/Subscriptions/Rules":     {Kind: RuleList, Name: "t", Subscription: "Subscriptions"},
		"t/Subscriptions/s/Rules/Subscriptions":   {Kind: RuleTarget, Name: "t", Subscription: "s", Rule: "Subscriptions"},
		"t/Subscriptions/Subscriptions/Rules/r":   {Kind: RuleTarget, Name: "t", Subscription: "Subscriptions", Rule: "r"},
		"t/Subscriptions/s/Rules/r/Subscriptions": {Kind: SubscriptionList, Name: "t/Subscriptions/s/Rules/r"},
	} {
		want.Path = path
		if got := TargetAt(path); got != want {
			t.Errorf("TargetAt(%q) = %+v, want %+v", path, got, want)
		}
	}
}

// The administration API and links agree on the name of a subscription.
func FuzzTargetAt(f *testing.F) {
	for _, path := range []string{"t/Subscriptions/s", "a/b/subscriptions/Rules", "t/Subscriptions/Subscriptions", "orders", "$Resources/Queues"} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, escaped string) {
		path, err := URLPath(escaped)
		if err != nil {
			return
		}
		r := TargetAt(path)
		a, err := OfPath(path)
		if err != nil || a.SubQueue != Main || a.Node != Messages || r.Kind != EntityTarget && r.Kind != SubscriptionTarget {
			return
		}
		if !strings.EqualFold(r.Entity(), a.Entity()) || r.Name != a.Name {
			t.Errorf("%q is %+v, and on a link %+v", escaped, r, a)
		}
	})
}

func TestSplitSubscriptionIsTheInverseOfSubscriptionPath(t *testing.T) {
	for path, want := range map[string][2]string{
		SubscriptionPath("events", "audit"):      {"events", "audit"},
		SubscriptionPath("team/events", "a"):     {"team/events", "a"},
		"events/subscriptions/AUDIT":             {"events", "AUDIT"},
		"events/Subscriptions/a/Subscriptions/b": {"events/Subscriptions/a", "b"},
		"orders":                                 {"orders", ""},
		"Subscriptions/audit":                    {"Subscriptions/audit", ""},
		"events/Subscriptions":                   {"events/Subscriptions", ""},
		"":                                       {},
	} {
		if name, subscription := SplitSubscription(path); name != want[0] || subscription != want[1] {
			t.Errorf("SplitSubscription(%q) = %q, %q, want %q", path, name, subscription, want)
		}
	}
}
