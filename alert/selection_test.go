// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"strings"
	"testing"
)

func TestASinkGetsTheEventsThatItChooses(t *testing.T) {
	labelsOf := map[string]map[string]string{
		"Orders": {"team": "payments", "severity": "critical"},
		"bills":  {"team": "billing", "severity": "info"},
		"audit":  nil,
	}
	for name, test := range map[string]struct {
		entities, labels, events []string
		want                     string
	}{
		"all":                   {nil, nil, []string{"missed", "near"}, "Orders near, Orders missed, audit near, audit missed, bills near, bills missed"},
		"of some entities":      {[]string{"orders", "b*"}, nil, []string{"missed"}, "Orders missed, bills missed"},
		"of all but one":        {[]string{"!ORDERS"}, nil, []string{"missed"}, "audit missed, bills missed"},
		"of some without one":   {[]string{"!b*", "*s"}, nil, []string{"missed"}, "Orders missed"},
		"of a team":             {nil, []string{"team=payments"}, []string{"missed"}, "Orders missed"},
		"of no team":            {nil, []string{"team="}, []string{"missed"}, "audit missed"},
		"of another team":       {nil, []string{`team != "payments"`}, []string{"missed"}, "audit missed, bills missed"},
		"of two teams":          {nil, []string{"team=~pay.*|billing"}, []string{"missed"}, "Orders missed, bills missed"},
		"of a team but no info": {nil, []string{"team=~.+", "severity!~info|warning"}, []string{"missed"}, "Orders missed"},
		"of a dot":              {nil, []string{"team=paymen.s"}, []string{"missed"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := NewSelection(test.entities, test.labels, test.events)
			if err != nil {
				t.Fatal(err)
			}
			var passed []string
			a := s.Only(alerter(func(e Event) {
				passed = append(passed, e.Data.Entity+" "+shortType(e.Type))
			}))
			for _, entity := range []string{"Orders", "audit", "bills"} {
				for _, kind := range []string{TypeNear, TypeMissed, TypeIncomplete} {
					if err := a.Alert(t.Context(), Event{Type: kind, Data: EventData{Entity: entity, Labels: labelsOf[entity]}}); err != nil {
						t.Error(err)
					}
				}
			}
			if got := strings.Join(passed, ", "); got != test.want {
				t.Errorf("passed %s, want %s", got, test.want)
			}
		})
	}
}

func TestChoicesThatCannotBeReadAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		entities, labels, events []string
		want                     string
	}{
		"entities": {[]string{"!["}, nil, nil, `"![" is not a pattern`},
		"labels":   {nil, []string{"team"}, nil, `"team" is no matcher; write one like team=payments`},
		"regexp":   {nil, []string{"team=~("}, nil, `"team=~(" is no matcher: error parsing regexp`},
		"events":   {nil, nil, []string{"late"}, `there are no events called "late"; choose from missed, incomplete, near, blind`},
	} {
		if _, err := NewSelection(test.entities, test.labels, test.events); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want an error with %s", name, err, test.want)
		}
	}
}
