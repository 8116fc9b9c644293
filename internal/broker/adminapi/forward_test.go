// SPDX-License-Identifier: Apache-2.0

package adminapi_test

import (
	"strings"
	"testing"

	"overdue/internal/broker"
)

// The JavaScript SDK compares it with the endpoint of a connection string.
func TestAForwardComesBackWithItsHostInLowerCase(t *testing.T) {
	n, h := setup(t)
	scene(t, n)
	for _, name := range []string{"ForwardTo", "ForwardDeadLetteredMessagesTo"} {
		for stated, want := range map[string]string{
			"SB://Overdue.TEST:5671/FWD": "sb://overdue.test:5671/FWD", "sb://overdue.test/fwd": "sb://overdue.test/fwd", "FWD": "FWD",
		} {
			for path, kind := range map[string]string{"/q": "QueueDescription", "/t/Subscriptions/new": "SubscriptionDescription"} {
				body := describe(kind, "<"+name+">"+stated+"</"+name+">")
				if got := element(t, must(t, h, 201, "PUT", path+version, body), name); got != want {
					t.Errorf("%s %q of %s came back as %q, want %q", name, stated, path, got, want)
				}
				if got := element(t, must(t, h, 200, "PUT", path+version, body, "If-Match", "*"), name); got != want {
					t.Errorf("%s %q of %s came back as %q from an update, want %q", name, stated, path, got, want)
				}
				must(t, h, 200, "DELETE", path+version, "")
			}
		}
	}
}

func TestAnEntityWithSessionsCannotForward(t *testing.T) {
	n, h := setup(t)
	scene(t, n)
	const both = "<RequiresSession>true</RequiresSession><ForwardTo>fwd</ForwardTo>"
	for path, kind := range map[string]string{"/new": "QueueDescription", "/t/Subscriptions/new": "SubscriptionDescription"} {
		must(t, h, 400, "PUT", path+version, describe(kind, both))
		must(t, h, 201, "PUT", path+version, describe(kind, "<RequiresSession>true</RequiresSession>"))
		must(t, h, 400, "PUT", path+version, describe(kind, both), "If-Match", "*")
	}
}

// Go names the rule in the body then, and Python's test_mgmt_rule_update_invalid has it refused
// where nobody does.
func TestARuleThatNobodyNamesIsRefused(t *testing.T) {
	n, h := setup(t)
	scene(t, n)
	before := must(t, h, 200, "GET", "/t/Subscriptions/s/Rules/$Default"+version, "")
	for _, in := range []string{"", "<Name/>", "<Name> </Name>"} {
		body := describe("RuleDescription", `<Filter i:type="FalseFilter"/>`+in)
		for _, path := range []string{"/t/Subscriptions/s/Rules/", "/t/subscriptions/s/rules"} {
			must(t, h, 400, "PUT", path+version, body)
			must(t, h, 400, "PUT", path+version, body, "If-Match", "*")
		}
	}
	if after := must(t, h, 200, "GET", "/t/Subscriptions/s/Rules/$Default"+version, ""); after != before {
		t.Errorf("$Default is\n%s\nwant it as it was:\n%s", after, before)
	}
	rules, err := n.Rules("t", "s")
	if err != nil || len(rules) != 1 || !strings.EqualFold(rules[0].Config.Name, broker.DefaultRuleName) {
		t.Errorf("rules = %+v, %v, want the default one", rules, err)
	}
}
