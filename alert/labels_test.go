// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestLabelsThatAlertsCannotHaveAreRefused(t *testing.T) {
	many := map[string]string{}
	for i := range maxEntityLabels + 1 {
		many["l"+strings.Repeat("x", i)] = "x"
	}
	for want, labels := range map[string]map[string]string{
		"there are 17 labels; give 16 at most":                                  many,
		`"2nd" is not a name`:                                                   {"2nd": "x"},
		`"__name__" is not a name`:                                              {"__name__": "x"},
		"entity is set by Overdue itself; use another name":                     {"entity": "x"},
		"alertname is set by Overdue itself; use another name":                  {"alertname": "x"},
		"the value of team is not UTF-8 of 1 to 200 bytes":                      {"team": ""},
		`severity is "high"; choose from critical, error, warning, info`:        {"severity": "high"},
		`objective is "1"; write a share between 0 and 1`:                       {"objective": "1"},
		`objective is "NaN"; write a share`:                                     {"objective": "NaN"},
		`objective is "99%"; write a share`:                                     {"objective": "99%"},
		"runbook: this is not a URL; write one like https://example.com/orders": {"runbook": "javascript:alert(1)"},
		"runbook has a placeholder; write the URL for this entity":              {"runbook": "https://w.example/{entity}"},
	} {
		if err := CheckLabels(labels); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("CheckLabels(%v) = %v, want an error with %s", labels, err, want)
		}
	}
	if err := CheckLabels(map[string]string{"team": "payments", "severity": "info", "runbook": "https://w.example/orders", "objective": "0.999", "cost_center": "é"}); err != nil {
		t.Error(err)
	}
}

var ownLabels = map[string]string{"team": "payments", "service": "checkout", "severity": "warning", "runbook": "https://w.example/orders?a=b"}

func TestNotificationsHaveTheLabelsOfTheirEntity(t *testing.T) {
	p := firing()
	maps.Copy(p.Labels, ownLabels)
	text, err := Text{}.WithLinks("", "https://all.example/")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, words, err := text.render(p); err != nil || !strings.HasPrefix(words, "Namespace: n\nLabels: service checkout, severity warning, team payments\n") {
		t.Errorf("the text is %q, %v", words, err)
	}
	const runbook = "https://w.example/orders?a=b"
	url, posted := hooked(t)
	for name, test := range map[string]struct {
		make func() (Notifier, error)
		want map[string]any // by path
	}{
		"alertmanager": {
			func() (Notifier, error) {
				cfg := AlertmanagerConfig{HTTP: HTTP{URL: url}, Labels: map[string]string{"team": "everybody", "site": "eu"}}
				return NewAlertmanager("", cfg, text)
			},
			map[string]any{
				"0.labels": map[string]any{
					"alertname": "OverdueDeadlineMissed", "source": "sb://n", "entity": "orders", "site": "eu",
					"team": "payments", "service": "checkout", "severity": "warning",
				},
				"0.annotations.runbook_url": runbook,
			},
		},
		"pagerduty": {
			func() (Notifier, error) {
				return NewPagerDuty("", PagerDutyConfig{HTTP: HTTP{URL: url}, RoutingKey: "r"}, text)
			},
			map[string]any{"payload.severity": "warning", "payload.custom_details.team": "payments", "links.0.href": runbook},
		},
		"teams": {
			func() (Notifier, error) { return NewChat("teams", "", HTTP{URL: url}, text) },
			map[string]any{"attachments.0.content.actions.0.url": runbook, "attachments.0.content.body.0.color": "warning"},
		},
		"webhook": {
			func() (Notifier, error) { return NewWebhookNotifier("", HTTP{URL: url}, text) },
			map[string]any{"commonLabels.team": "payments", "commonLabels.severity": "warning", "commonAnnotations.runbook_url": runbook},
		},
	} {
		a, err := test.make()
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Notify(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		_, body := posted()
		for path, want := range test.want {
			var keys []any
			for key := range strings.SplitSeq(path, ".") {
				if key == "0" {
					keys = append(keys, 0)
					continue
				}
				keys = append(keys, key)
			}
			if diff := cmp.Diff(want, valueAt(t, body, keys...)); diff != "" {
				t.Errorf("%s: %s (-want +got):\n%s", name, path, diff)
			}
		}
	}
}

// Anyone with the right to send to the monitor queue can write a digest.
func TestForgedLabelsHaveNoEffect(t *testing.T) {
	p := firing()
	p.Labels["severity"], p.Labels["runbook"] = "none", "javascript:alert(1)"
	shown, _, _, err := Text{runbook: "https://all.example/"}.render(p)
	if err != nil || shown.Runbook != "https://all.example/" || shown.severity("error") != "error" {
		t.Errorf("runbook %q and severity %q, %v; want those of the sink", shown.Runbook, shown.severity("error"), err)
	}
}

// The labels of an alert identify it in an Alertmanager. So a group keeps its labels until it is
// resolved, and events with others make another group.
func TestAGroupKeepsItsLabels(t *testing.T) {
	playGroups(t, nil, func(s *groupScene) {
		e := Event{ID: "1", Type: TypeMissed, Time: time.Now(), Data: EventData{Entity: "orders", Labels: map[string]string{"team": "payments"}}}
		for _, team := range []string{"payments", "billing"} {
			e.Data.Labels = map[string]string{"team": team}
			if err := s.g.Alert(s.Context(), e); err != nil {
				s.Fatal(err)
			}
			s.pass(time.Minute)
			s.stop() // another process goes on
			s.start()
		}
		s.pass(time.Hour)
		var said []string
		for _, n := range s.p.pages {
			said = append(said, n.Labels["team"]+" "+n.state())
		}
		slices.Sort(said) // both end at once
		want := "billing firing, billing resolved, payments firing, payments resolved"
		if got := strings.Join(said, ", "); got != want {
			s.Errorf("notified %s, want %s", got, want)
		}
	})
}

func TestGroupsOfSeveralEntitiesHaveNoLabelsOfOne(t *testing.T) {
	playGroups(t, func(c *GroupsConfig) { c.By = []string{"type"} }, func(s *groupScene) {
		for entity, team := range map[string]string{"orders": "payments", "bills": "billing"} {
			e := Event{ID: entity, Type: TypeMissed, Time: time.Now(), Data: EventData{Entity: entity, Labels: map[string]string{"team": team}}}
			if err := s.g.Alert(s.Context(), e); err != nil {
				s.Fatal(err)
			}
		}
		s.pass(time.Minute)
		if n := s.p.pages; len(n) != 1 || n[0].Count != 2 || n[0].Labels["team"] != "" {
			s.Errorf("notified %+v, want two events at once, of no team", n)
		}
	})
}

func TestRulesOfSubscriptionsCanFilterByLabels(t *testing.T) {
	m, err := eventMessage(Event{Data: EventData{Entity: "orders", Labels: map[string]string{"team": "payments", "messageId": "forged"}}})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"entity": "orders", "messageId": "", "team": "payments"}
	if diff := cmp.Diff(want, m.ApplicationProperties); diff != "" {
		t.Errorf("properties (-want +got):\n%s", diff)
	}
}
