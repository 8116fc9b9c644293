// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func noLabels(string) map[string]string { return nil }

// blindEvent is about a host that was blind for two minutes.
func blindEvent() Event {
	from := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	b := Blind{From: from, To: from.Add(2 * time.Minute), Reason: "the namespace did not answer"}
	b.SetEntities(map[string]BlindCounts{
		"bills":                      {Deadlines: 5},
		"orders":                     {Deadlines: 9, Late: 3, Unknown: 1, Lost: 2},
		"events/Subscriptions/audit": {Deadlines: 1, Late: 1},
	}, noLabels)
	return NewBlind("Contoso.servicebus.windows.net:5671", "host-1", b)
}

func TestABlindEventIsTheSameAfterItsJSONForm(t *testing.T) {
	want := blindEvent()
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	const data = `"data":{"from":"2026-01-31T12:00:00Z","to":"2026-01-31T12:02:00Z","reason":"the namespace did not answer",` +
		`"deadlines":15,"late":4,"unknown":1,"lost":2,"entities":[{"entity":"orders","deadlines":9,"late":3,"unknown":1,"lost":2},`
	if !strings.Contains(string(text), data) {
		t.Errorf("the JSON form is\n%s\nwant it to contain\n%s", text, data)
	}
	var got Event
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestABlindEventNamesTheEntitiesWithTheMostHarm(t *testing.T) {
	counts := map[string]BlindCounts{}
	for i := range 3 * MaxBlindEntities {
		counts[fmt.Sprint("q-", i)] = BlindCounts{Deadlines: i + 1}
	}
	counts["worst"] = BlindCounts{Deadlines: 1, Late: 1}
	var b Blind
	b.SetEntities(counts, noLabels)
	n := 3 * MaxBlindEntities
	if len(b.Entities) != MaxBlindEntities || b.Entities[0].Entity != "worst" || b.Entities[1].Deadlines != n || b.Deadlines != n*(n+1)/2+1 {
		t.Errorf("%d entities, first %v, of %d deadlines", len(b.Entities), b.Entities[:2], b.Deadlines)
	}
}

func TestABlindEventGoesToTheSinksOfItsEntities(t *testing.T) {
	for name, test := range map[string]struct {
		entities, labels, events []string
		want                     bool
	}{
		"of all":                {want: true},
		"of one of its queues":  {entities: []string{"bill*"}, want: true},
		"of one of its topics":  {entities: []string{"events"}, want: true},
		"of all but its queues": {entities: []string{"!orders", "!events", "!bills"}},
		"of a team":             {labels: []string{"team=payments"}, want: true},
		"of another team":       {labels: []string{"team=shipping"}},
		"of another queue":      {entities: []string{"invoices"}},
		"of blind times":        {events: []string{"missed", "blind"}, want: true},
		"of missed deadlines":   {events: []string{"missed"}},
		"of a queue, not blind": {entities: []string{"orders"}, events: []string{"near"}},
	} {
		selection, err := NewSelection(test.entities, test.labels, test.events)
		if err != nil {
			t.Fatal(err)
		}
		a, e := selection.Only(alerter(func(Event) {})), blindEvent()
		e.Blind.Entities[0].Labels = map[string]string{"team": "payments"}
		if got := Delivers(a, &e); got != test.want {
			t.Errorf("a sink %s gets it: %t, want %t", name, got, test.want)
		}
		e.Blind.SetEntities(nil, noLabels) // concerns all
		if got, want := Delivers(a, &e), len(test.events) == 0 || slices.Contains(test.events, "blind"); got != want {
			t.Errorf("a sink %s gets one without entities: %t, want %t", name, got, want)
		}
	}
}

func TestABlindTimeInWords(t *testing.T) {
	e := blindEvent()
	p := Notification{Source: "sb://ns", Labels: map[string]string{"type": TypeBlind}, Count: 1, Total: 1, Samples: []Event{e}}
	const title = "Blind on ns from 2026-01-31 12:00:00Z to 2026-01-31 12:02:00Z (2m0s): 15 deadlines, 4 missed and found late, 1 unknown, at least 2 lost with a deleted monitor queue"
	const text = `Namespace: ns
What to do: Handle the late ones like any missed deadline: each has its own alert. Ask the consumers whether they had the messages of unknown outcome in time. Ask the consumers for the lost ones, too: they are on their queues no more, and nobody watched them
host-1 saw no deadline from 2026-01-31 12:00:00Z to 2026-01-31 12:02:00Z (2m0s): the namespace did not answer
What fell into that time: 15 deadlines, 4 missed and found late, 1 unknown, at least 2 lost with a deleted monitor queue
- orders: 9 deadlines, 3 missed and found late, 1 unknown, at least 2 lost with a deleted monitor queue
- events/Subscriptions/audit: 1 deadline, 1 missed and found late
- bills: 5 deadlines`
	if diff := cmp.Diff([]string{title, text}, []string{p.Title(), p.Text()}); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	e.Blind.SetEntities(nil, noLabels)
	e.Blind.SoFar = true
	const line = "blind: no deadline was seen from 2026-01-31 12:00:00Z to 2026-01-31 12:02:00Z (2m0s): the namespace did not answer; so far no deadline fell into it"
	if got := e.sentence(); got != line {
		t.Errorf("the log says\n%s\nwant\n%s", got, line)
	}
	if got := p.severity("critical"); got != "warning" {
		t.Errorf("severity %s, want warning", got)
	}
}

// That no event came says nothing while Overdue is blind, even if a process starts meanwhile.
func TestNoGroupIsResolvedWhileBlind(t *testing.T) {
	for name, restarts := range map[string]bool{"the same process": false, "one that started meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			var sight Sight
			playGroups(t, func(c *GroupsConfig) { c.Sight = &sight }, func(s *groupScene) {
				sight.Regain(time.Now())
				s.miss("orders", 1)
				s.pass(time.Minute)
				sight.Lose()
				s.o.serve(nil) // the namespace is down
				s.pass(time.Hour)
				if restarts {
					s.stop()
					s.start()
					s.pass(30 * time.Minute)
				}
				s.o.serve(s.g)
				s.pass(15 * time.Minute) // deadlines of the outage are still being checked
				sight.Regain(time.Now())
				s.pass(9 * time.Minute)
				s.miss("orders", 1)
				s.pass(time.Minute)
				if n := s.resolutions(); n != 0 {
					t.Errorf("resolved %d times: %q", n, s.p.said())
				}
				s.pass(15 * time.Minute)
				if all := s.p.said(); s.resolutions() != 1 || !strings.HasSuffix(all[len(all)-1], "orders resolved 0 of 2") {
					t.Errorf("resolved %d times, want once, at the end: %q", s.resolutions(), all)
				}
			})
		})
	}
}

// A blind time is over when it is reported: only sinks with incidents hear of its end.
func TestABlindTimeIsToldOnce(t *testing.T) {
	playGroups(t, nil, func(s *groupScene) {
		e := blindEvent()
		e.Time = time.Now()
		if err := s.g.Alert(s.Context(), e); err != nil {
			s.Fatal(err)
		}
		s.pass(time.Hour)
		s.want("30s  firing 1 of 1")
		if s.o.left != 0 {
			t.Errorf("%d digests are left on the outbox", s.o.left)
		}
	})
	for sink, want := range map[Notifier]bool{&pager{}: false, &chat{}: false, &email{}: false, &alertmanager{}: true, &pagerDuty{}: true, &webhookNotifier{}: true} {
		g := &Groups{cfg: GroupsConfig{Sink: sink}}
		if got := g.keepsIncidents(); got != want {
			t.Errorf("%T keeps incidents: %t, want %t", sink, got, want)
		}
	}
}
