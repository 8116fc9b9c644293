// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestALinkNamesTheGroup(t *testing.T) {
	p := firing()
	p.Source, p.Labels = "sb://n:5672", map[string]string{"type": TypeNear, "entity": "a/b&c", "subscription": "s t|<!channel>"}
	text, err := Text{}.WithLinks("https://g.example/d?ns={namespace}&e={entity}&s={subscription}", "https://w.example/(x)/{type}")
	if err != nil {
		t.Fatal(err)
	}
	p, _, _, err = text.render(p)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := p.Dashboard, "https://g.example/d?ns=n%3A5672&e=a%2Fb%26c&s=s%20t%7C%3C%21channel%3E"; got != want {
		t.Errorf("dashboard = %s, want %s", got, want)
	}
	if got, want := p.Runbook, "https://w.example/%28x%29/near"; got != want {
		t.Errorf("runbook = %s, want %s", got, want)
	}
}

func TestAMistakeInALinkNamesItsKey(t *testing.T) {
	for link, want := range map[string]string{
		"https://g/{queue}":                              "{queue} is no placeholder; use {entity}, {namespace}, {subscription}, {type}",
		"g.example/{entity}":                             "this is not a URL",
		"javascript:alert(1)":                            "this is not a URL",
		"https://{entity}/d":                             "the host of a link has no placeholders",
		"https://g.example/%zz":                          "this is not a URL",
		"https://g.example/" + strings.Repeat("x", 2000): "2000 characters at most",
	} {
		for _, key := range []string{"links.dashboard", "links.runbook"} {
			dashboard, runbook := link, ""
			if key == "links.runbook" {
				dashboard, runbook = "", link
			}
			_, err := Text{}.WithLinks(dashboard, runbook)
			if wrong := (*SettingError)(nil); !errors.As(err, &wrong) || wrong.Key != key || !strings.Contains(err.Error(), want) {
				t.Errorf("%s %s: %v, want a SettingError about it with %q", key, link, err, want)
			}
		}
	}
}

func TestEverySinkLinks(t *testing.T) {
	const dashboard, runbook = "https://g.example/d?a=1&e=orders", "https://w.example/orders"
	text, err := Text{}.WithLinks("https://g.example/d?a=1&e={entity}", "https://w.example/{entity}")
	if err != nil {
		t.Fatal(err)
	}
	url, posted := hooked(t)
	for name, tt := range map[string]struct {
		make func() (Notifier, error)
		want map[string][]any // value: path
	}{
		"slack": {func() (Notifier, error) { return NewChat("slack", "", HTTP{URL: url}, text) }, map[string][]any{
			"<https://g.example/d?a=1&amp;e=orders|Dashboard> · <" + runbook + "|Runbook>": {"blocks", 2, "text", "text"},
		}},
		"teams": {func() (Notifier, error) { return NewChat("teams", "", HTTP{URL: url}, text) }, map[string][]any{
			dashboard: {"attachments", 0, "content", "actions", 0, "url"}, runbook: {"attachments", 0, "content", "actions", 1, "url"},
		}},
		"pagerduty": {func() (Notifier, error) {
			return NewPagerDuty("", PagerDutyConfig{HTTP: HTTP{URL: url}, RoutingKey: "r"}, text)
		}, map[string][]any{
			dashboard: {"links", 0, "href"}, runbook: {"links", 1, "href"},
		}},
		"alertmanager": {func() (Notifier, error) { return NewAlertmanager("", AlertmanagerConfig{HTTP: HTTP{URL: url}}, text) }, map[string][]any{
			dashboard: {0, "annotations", "dashboard_url"}, runbook: {0, "annotations", "runbook_url"},
		}},
		"webhook": {func() (Notifier, error) { return NewWebhookNotifier("", HTTP{URL: url}, text) }, map[string][]any{
			dashboard: {"alerts", 0, "generatorURL"}, runbook: {"commonAnnotations", "runbook_url"},
		}},
	} {
		a, err := tt.make()
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Notify(t.Context(), firing()); err != nil {
			t.Fatal(err)
		}
		_, body := posted()
		for want, path := range tt.want {
			if got := valueAt(t, body, path...); got != want {
				t.Errorf("%s: %v = %v, want %s", name, path, got, want)
			}
		}
	}
	port, mails := mailServer(t, "250 ok")
	a, err := NewEmail("", EmailConfig{Host: "127.0.0.1", Port: port, Security: noTLS, From: "overdue@example.com", To: []string{"a@example.com"}}, text)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Notify(t.Context(), firing()); err != nil {
		t.Fatal(err)
	}
	if got := <-mails; !strings.Contains(got, "Runbook: "+runbook) {
		t.Errorf("the mail has no link to the runbook:\n%s", got)
	}
}

func TestAlertmanagerGetsConfiguredLabels(t *testing.T) {
	url, posted := hooked(t)
	a, err := NewAlertmanager("", AlertmanagerConfig{
		HTTP: HTTP{URL: url}, Severity: "error", Labels: map[string]string{"team": "payments"}, Annotations: map[string]string{"owner": "p@example.com"},
	}, Text{})
	if err != nil {
		t.Fatal(err)
	}
	near := firing()
	near.Labels = map[string]string{"type": TypeNear, "entity": "orders"}
	for severity, p := range map[string]Notification{"error": firing(), "warning": near} {
		if err := a.Notify(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		_, body := posted()
		want := map[string]any{
			"alertname": alertName(p.Labels["type"]), "source": "sb://n", "entity": "orders", "severity": severity, "team": "payments",
		}
		if diff := cmp.Diff(want, valueAt(t, body, 0, "labels")); diff != "" {
			t.Errorf("labels (-want +got):\n%s", diff)
		}
		if got := valueAt(t, body, 0, "annotations", "owner"); got != "p@example.com" {
			t.Errorf("annotation owner = %v", got)
		}
	}
	for want, cfg := range map[string]AlertmanagerConfig{
		"labels: Overdue sets entity itself":                 {Labels: map[string]string{"entity": "x"}},
		"labels: Overdue sets alertname itself":              {Labels: map[string]string{"alertname": "x"}},
		`labels: "a-b" is not a name`:                        {Labels: map[string]string{"a-b": "x"}},
		"annotations: Overdue sets summary itself":           {Annotations: map[string]string{"summary": "x"}},
		"annotations: the value of a is not UTF-8 of 4096 b": {Annotations: map[string]string{"a": strings.Repeat("x", maxExtraValue+1)}},
		`annotations: "a` + strings.Repeat("a", 59) + `" is`: {Annotations: map[string]string{strings.Repeat("a", 101): "x"}},
	} {
		cfg.URL = url
		_, err := NewAlertmanager("", cfg, Text{})
		if bad := (*SettingError)(nil); !errors.As(err, &bad) || !strings.HasPrefix(bad.Key+": "+bad.Error(), "alertmanager."+want) {
			t.Errorf("NewAlertmanager = %v, want a SettingError with %q", err, want)
		}
	}
}

// A rule of Prometheus has the entity of a metric, topic/Subscriptions/name. Alertmanager compares
// labels as they are.
func TestSinksNameAnEntityAsTheMetricsDo(t *testing.T) {
	url, posted := hooked(t)
	cfg := HTTP{URL: url}
	for name, tt := range map[string]struct {
		make  func() (Notifier, error)
		paths [][]any
	}{
		"alertmanager": {func() (Notifier, error) { return NewAlertmanager("", AlertmanagerConfig{HTTP: cfg}, Text{}) }, [][]any{{0, "labels"}}},
		"webhook":      {func() (Notifier, error) { return NewWebhookNotifier("", cfg, Text{}) }, [][]any{{"groupLabels"}, {"commonLabels"}, {"alerts", 0, "labels"}}},
		"pagerduty": {func() (Notifier, error) {
			return NewPagerDuty("", PagerDutyConfig{HTTP: cfg, RoutingKey: "r"}, Text{})
		}, [][]any{{"payload", "custom_details"}}},
	} {
		a, err := tt.make()
		if err != nil {
			t.Fatal(err)
		}
		for _, tc := range []struct{ subscription, want string }{{"", "events"}, {"billing", "events/Subscriptions/billing"}} {
			p := firing()
			p.Labels = map[string]string{"type": TypeMissed, "entity": "events"}
			if tc.subscription != "" {
				p.Labels["subscription"] = tc.subscription
			}
			if err := a.Notify(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			_, body := posted()
			for _, path := range tt.paths {
				if got := valueAt(t, body, append(path, "entity")...); got != tc.want {
					t.Errorf("%s: entity in %v = %v, want %s", name, path, got, tc.want)
				}
			}
			if got := p.Title(); got != "3 more missed deadlines on "+tc.want+", 10 since 2026-01-31 11:00:00Z" {
				t.Errorf("title = %q", got)
			}
		}
	}
}

func TestAMessageWithoutIDIsNamedByItsSequenceNumber(t *testing.T) {
	p := firing()
	p.Samples[0].Subject = "#17"
	if want := "- #17, session s, due"; !strings.Contains(p.Text(), want) {
		t.Errorf("Text = %q, want the line %q", p.Text(), want)
	}
}

func TestAdviceFitsTheEvent(t *testing.T) {
	group := func(eventType, entity, subscription string, resolved bool, d *DeadLetters) Notification {
		return Notification{Labels: map[string]string{"type": eventType, "entity": entity, "subscription": subscription}, Resolved: resolved, DeadLetters: d}
	}
	sampled := func(subscriptions ...string) Notification {
		n := group(TypeMissed, "events", "", false, nil)
		for _, name := range subscriptions {
			n.Samples = append(n.Samples, Event{Data: EventData{Entity: "events", Subscription: name}})
		}
		return n
	}
	for _, tt := range []struct {
		p    Notification
		want string
	}{
		{group(TypeMissed, "events", "audit", false, nil), "Check that a consumer of events/Subscriptions/audit is running and keeps up. Then resubmit or purge the dead letters: overdue dlq list events/Subscriptions/audit"},
		{sampled("audit", "bills", "audit"), "Check that a consumer of events is running and keeps up. Then resubmit or purge the dead letters: " +
			"overdue dlq list events/Subscriptions/audit, overdue dlq list events/Subscriptions/bills"},
		{sampled("audit", "x;y"), "Check that a consumer of events is running and keeps up. Then resubmit or purge the dead letters"},
		{group(TypeMissed, "events", "", true, &DeadLetters{Count: 2, Subscriptions: []string{"audit"}}), "Resubmit or purge the dead letters: overdue dlq list events/Subscriptions/audit"},
		{group(TypeMissed, "orders; rm -rf /", "", false, nil), "Check that a consumer of orders; rm -rf / is running and keeps up. Then resubmit or purge the dead letters"},
		{group(TypeMissed, "orders", "", true, nil), "Resubmit or purge the dead letters: overdue dlq list orders"},
		{group(TypeMissed, "orders", "", true, &DeadLetters{Count: 1}), "Resubmit or purge the dead letters: overdue dlq list orders"},
		{group(TypeMissed, "orders", "", true, &DeadLetters{}), ""},
		{group(TypeNear, "orders", "", false, nil), "Check that a consumer of orders is running and keeps up. Messages that nobody receives in time become dead letters"},
		{group(TypeIncomplete, "orders", "", false, nil), "Check whether consumers of orders hang or keep abandoning messages. The messages are still there"},
		{group(TypeNear, "orders", "", true, nil), ""}, {group(TypeIncomplete, "orders", "", true, nil), ""},
		{group(typeTest, "overdue-doctor", "", false, nil), "Nothing. overdue doctor sent this to test the sink"},
	} {
		if got := tt.p.Advice(); got != tt.want {
			t.Errorf("advice of %v, resolved %v = %q, want %q", tt.p.Labels, tt.p.Resolved, got, tt.want)
		}
	}
}

func TestAResolvedGroupSaysWhetherDeadLettersAreLeft(t *testing.T) {
	for want, d := range map[string]*DeadLetters{
		"Dead letters: none left (as of 2026-01-31 12:00:00Z)":                                        {Time: noon},
		"Dead letters: 5 left, 3 of them from missed deadlines (as of 2026-01-31 12:00:00Z)":          {Count: 5, Missed: 3, Time: noon},
		"Dead letters: at least 5 left, 3 of them from missed deadlines (as of 2026-01-31 12:00:00Z)": {Count: 5, Missed: 3, More: true, Time: noon},
		"Dead letters: 5 left, all of them from missed deadlines (as of 2026-01-31 12:00:00Z)":        {Count: 5, Missed: 5, Time: noon},
		"Dead letters: 5 left, none of them from missed deadlines (as of 2026-01-31 12:00:00Z)":       {Count: 5, Time: noon},
		"Dead letters: 1 left, from a missed deadline (as of 2026-01-31 12:00:00Z)":                   {Count: 1, Missed: 1, Time: noon},
		"Dead letters: 1 left, not from a missed deadline (as of 2026-01-31 12:00:00Z)":               {Count: 1, Time: noon},
		"Dead letters: 5 left, 1 of them from a missed deadline (as of 2026-01-31 12:00:00Z)":         {Count: 5, Missed: 1, Time: noon},
		"Dead letters: not counted, see the dead-letter queue":                                        nil,
	} {
		p := resolved()
		p.DeadLetters = d
		if lines := strings.Split(p.Text(), "\n"); !slices.Contains(lines, want) {
			t.Errorf("Text = %q, want the line %q", lines, want)
		}
	}
	if text := firing().Text(); strings.Contains(text, "Dead letters:") {
		t.Errorf("Text of a firing group = %q, want no count", text)
	}
}

func TestDeadLettersAreCountedWhenAGroupIsResolved(t *testing.T) {
	for name, failure := range map[string]error{"counted": nil, "not counted": errors.New("no right")} {
		t.Run(name, func(t *testing.T) {
			var asked []string
			count := func(_ context.Context, entity, subscription string) (DeadLetters, error) {
				asked = append(asked, entity+"/"+subscription)
				return DeadLetters{Count: 3, Missed: 2, Time: time.Now()}, failure
			}
			playGroups(t, func(c *GroupsConfig) { c.DeadLetters = count }, func(s *groupScene) {
				s.miss("orders", 2)
				s.pass(time.Hour)
				if !slices.Equal(asked, []string{"orders/"}) {
					t.Errorf("counted the dead letters of %q, want those of orders, once", asked)
				}
				last := s.p.pages[len(s.p.pages)-1]
				if !last.Resolved || (last.DeadLetters != nil) != (failure == nil) || s.p.pages[0].DeadLetters != nil {
					t.Errorf("notifications = %+v, want a count in the last unless that failed", s.p.pages)
				}
			})
		})
	}
}

func TestThePageShowsANotificationAsItIs(t *testing.T) {
	page, err := os.ReadFile("../docs/operate/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	sample := func(id string, due time.Duration) Event {
		return Event{Subject: id, Data: EventData{Deadline: noon.Add(due)}}
	}
	p := Notification{
		Source: "sb://contoso.servicebus.windows.net", Labels: map[string]string{"type": TypeMissed, "entity": "orders"},
		Count: 3, Total: 3, WorstLag: 25 * time.Millisecond, Samples: []Event{sample("order-1", -time.Second), sample("order-2", 4*time.Second)},
	}
	if want := p.Title() + "\n" + p.Text() + "\n"; !strings.Contains(string(page), "```text\n"+want+"```\n") {
		t.Errorf("docs/operate/alerts.md does not show\n%s", want)
	}
	p.DeadLetters, p.Resolved = &DeadLetters{Count: 5, Missed: 3, Time: noon.Add(15 * time.Minute)}, true
	if want := p.remaining(); !strings.Contains(strings.ReplaceAll(string(page), "\n", " "), "`"+want+"`") {
		t.Errorf("docs/operate/alerts.md does not show %s", want)
	}
}
