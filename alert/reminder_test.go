// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// ofType returns a notification about events of a type.
func ofType(kind string) Notification {
	p := firing()
	p.Labels = map[string]string{"type": kind, "entity": "orders"}
	return p
}

func TestWarningsDoNotCountAsMisses(t *testing.T) {
	for _, tc := range []struct{ kind, title, severity, asInfo, name string }{
		{TypeMissed, "3 more missed deadlines on orders", "critical", "info", "OverdueDeadlineMissed"},
		{TypeIncomplete, "3 more messages not completed in time on orders", "critical", "info", "OverdueDeadlineIncomplete"},
		{TypeNear, "3 more approaching deadlines on orders", "warning", "info", "OverdueDeadlineNear"},
	} {
		p := ofType(tc.kind)
		if got := p.Title(); !strings.HasPrefix(got, tc.title) {
			t.Errorf("Title = %q, want %q", got, tc.title)
		}
		if got, info := p.severity("critical"), p.severity("info"); got != tc.severity || info != tc.asInfo {
			t.Errorf("%s is %s, or %s where a missed deadline is info; want %s and %s", tc.kind, got, info, tc.severity, tc.asInfo)
		}
		if l := p.alertLabels(); l["alertname"] != tc.name || l["severity"] != tc.severity {
			t.Errorf("%s has the labels %v", tc.kind, l)
		}
	}
	playGroups(t, func(c *GroupsConfig) { c.By = []string{"entity"} }, func(s *groupScene) {
		s.miss("orders", 2)
		e := Event{ID: "near", Type: TypeNear, Time: time.Now(), Subject: "m", Data: EventData{Entity: "orders", Deadline: time.Now().Add(time.Minute)}}
		if err := s.g.Alert(s.Context(), e); err != nil {
			s.Fatal(err)
		}
		s.pass(time.Minute)
		var titles []string
		for _, p := range s.p.pages {
			titles = append(titles, p.Title())
		}
		if got := strings.Join(titles, ", "); len(titles) != 2 || !strings.Contains(got, "2 missed deadlines on orders") || !strings.Contains(got, "1 approaching deadline on orders") {
			t.Errorf("notifications %q, want one of two missed deadlines and one of an approaching deadline", titles)
		}
	})
}

func TestEventsAboutMessagesThatAreStillThere(t *testing.T) {
	e := Event{ID: "i", Type: TypeIncomplete, Source: "sb://n/orders", Subject: "m", Time: noon, Data: EventData{Entity: "orders", DeadlineKind: KindCompleted, LagMs: 7}}
	b, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	for _, absent := range []string{"deadLettered", "deadLetterReason", "strategy"} {
		if strings.Contains(string(b), absent) {
			t.Errorf("%s says %s", b, absent)
		}
	}
	if got := e.Data.Lag(); got != 7*time.Millisecond {
		t.Errorf("Lag = %v, want 7ms", got)
	}
	seen := map[string]bool{IDOf("q", 7, noon): true}
	for _, kind := range []string{TypeIncomplete, TypeNear} {
		for _, before := range []time.Duration{0, time.Second, time.Minute} {
			id := IDOfReminder(kind, "q", 7, noon, before)
			if seen[id] || id != IDOfReminder(kind, "Q", 7, noon, before) {
				t.Errorf("the id of %s, %v before, is that of another or differs by the case of its source", kind, before)
			}
			seen[id] = true
		}
	}
}
