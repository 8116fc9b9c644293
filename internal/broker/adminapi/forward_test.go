// SPDX-License-Identifier: Apache-2.0

package adminapi_test

import (
	"net/http/httptest"
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
	const sessions, forward = "<RequiresSession>true</RequiresSession>", "<ForwardTo>fwd</ForwardTo>"
	for path, kind := range map[string]string{"/q": "QueueDescription", "/t/Subscriptions/new": "SubscriptionDescription"} {
		answer := must(t, h, 400, "PUT", path+version, describe(kind, sessions+forward))
		if !strings.Contains(answer, "<Detail>SubCode=40000. Bad Request. ") {
			t.Errorf("%s = %s, want the SubCode 40000", path, answer)
		}
		must(t, h, 201, "PUT", path+version, describe(kind, sessions+"<ForwardDeadLetteredMessagesTo>fwd</ForwardDeadLetteredMessagesTo>"))
		must(t, h, 400, "PUT", path+version, describe(kind, sessions+forward), "If-Match", "*")
	}
}

func TestAnEntityThatForwardsIsNeverIdle(t *testing.T) {
	n, h := setup(t)
	scene(t, n)
	const idle, centuries = "<AutoDeleteOnIdle>PT10M</AutoDeleteOnIdle>", "<AutoDeleteOnIdle>P10675199DT2H48M5.477S</AutoDeleteOnIdle>"
	for path, c := range map[string]struct{ kind, elements string }{
		"/q": {"QueueDescription", "<ForwardTo>fwd</ForwardTo>" + idle}, "/t/Subscriptions/new": {"SubscriptionDescription", "<ForwardTo>fwd</ForwardTo>" + centuries},
	} {
		must(t, h, 201, "PUT", path+version, describe(c.kind, c.elements))
		for range 2 {
			if got := element(t, must(t, h, 200, "GET", path+version, ""), "AutoDeleteOnIdle"); got != maxTimeSpan {
				t.Errorf("%s with a forward has AutoDeleteOnIdle %s, want %s", path, got, maxTimeSpan)
			}
			must(t, h, 200, "PUT", path+version, describe(c.kind, c.elements), "If-Match", "*")
		}
	}
	q, err := n.QueueInfo("q")
	if err != nil || q.Config.AutoDeleteOnIdle != 0 {
		t.Errorf("the queue is deleted after %v, %v; want never", q.Config.AutoDeleteOnIdle, err)
	}
}

func TestAForwardStaysInTheNamespace(t *testing.T) {
	for asked, targets := range map[string]map[string]int{
		"a.servicebus.windows.net": {"sb://A.servicebus.windows.net:443/fwd": 201, "https://b.servicebus.windows.net/fwd": 400, "fwd": 201, "a.servicebus.windows.net/fwd": 400},
		"127.0.0.1:5673":           {"sb://localhost/fwd": 201, "http://[::1]:1/fwd": 201, "sb://t1.localhost/fwd": 400},
	} {
		for to, want := range targets {
			n, h := setup(t)
			scene(t, n)
			r := httptest.NewRequest("PUT", "/q"+version, strings.NewReader(describe("QueueDescription", "<ForwardTo>"+to+"</ForwardTo>")))
			r.Host = asked
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, r); w.Code != want {
				t.Errorf("ForwardTo %s of a queue of %s = %d %s, want %d", to, asked, w.Code, w.Body, want)
			}
		}
	}
}

func TestAForwardToWhatIsMissingIsRefusedInTheWordsOfTheService(t *testing.T) {
	_, h := setup(t)
	for _, name := range []string{"ForwardTo", "ForwardDeadLetteredMessagesTo"} {
		answer := must(t, h, 400, "PUT", "/q"+version, describe("QueueDescription", "<"+name+">sb://overdue.test/none</"+name+">"))
		if !strings.Contains(answer, "<Detail>SubCode=40400. The auto forwarding destination entity does not exist.") {
			t.Errorf("%s = %s, want the SubCode 40400", name, answer)
		}
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
