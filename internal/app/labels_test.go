// SPDX-License-Identifier: Apache-2.0

package app

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestLabelsOfQueuesAreAMetricAndReloaded(t *testing.T) {
	const queues = "broker: {queues: [{name: orders}, {name: bills}], topics: [{name: events, subscriptions: [{name: audit}]}]}\n"
	labelled := func(team string) string {
		return queues + "monitor: {entities: [{queue: orders, labels: {team: " + team + ", severity: warning}}, {queue: bills}, {topic: events, labels: {tier: 1, objective: 0.95}}]}\n"
	}
	p, adopt := reloaded(t, labelled("payments"))
	shows := func(want ...string) {
		t.Helper()
		for _, name := range []string{"orders", "events"} { // a start reads them in the background
			if _, err := p.catalog.Describe(t.Context(), name, time.Time{}); err != nil {
				t.Fatal(err)
			}
		}
		_, page := askAdmin(p.admin, "GET", "/metrics", "")
		var got []string
		for line := range strings.Lines(page) {
			if strings.HasPrefix(line, "overdue_entity_") && !strings.HasPrefix(line, "overdue_entity_missing") {
				got = append(got, strings.ReplaceAll(strings.TrimSpace(line), `,servicebus_namespace="embedded"`, ""))
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("series (-want +got):\n%s", diff)
		}
	}
	const events = `overdue_entity_labels{entity="events",label_objective="0.95",label_tier="1"} 1`
	const audit = `overdue_entity_labels{entity="events/Subscriptions/audit",label_objective="0.95",label_tier="1"} 1`
	const ofEvents = `overdue_entity_objective_ratio{entity="events"} 0.95`
	const ofAudit = `overdue_entity_objective_ratio{entity="events/Subscriptions/audit"} 0.95`
	shows(events, audit, `overdue_entity_labels{entity="orders",label_severity="warning",label_team="payments"} 1`, ofEvents, ofAudit)
	if _, _, err := adopt(labelled("shipping")); err != nil {
		t.Fatal(err)
	}
	shows(events, audit, `overdue_entity_labels{entity="orders",label_severity="warning",label_team="shipping"} 1`, ofEvents, ofAudit)
	if got := p.catalog.Labels("ORDERS")["team"]; got != "shipping" {
		t.Errorf("an event gets the team %q, want shipping", got)
	}
	if _, _, err := adopt(queues); err != nil {
		t.Fatal(err)
	}
	shows()
}
