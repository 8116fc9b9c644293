// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestWithoutDropsTheEventsOfOneEntity(t *testing.T) {
	var passed []string
	a := Without(alerter(func(e Event) { passed = append(passed, e.Data.Entity) }), "canary")
	for _, entity := range []string{"orders", "canary", "Canary", "bills"} {
		if err := a.Alert(t.Context(), Event{Data: EventData{Entity: entity}}); err != nil {
			t.Error(err)
		}
	}
	if want := []string{"orders", "bills"}; !slices.Equal(passed, want) {
		t.Errorf("passed the events of %q, want %q", passed, want)
	}
}

func TestGroupsAreFoundBehindFilters(t *testing.T) {
	playGroups(t, nil, func(s *groupScene) {
		if got, _ := Find[*Groups](Without((&Selection{}).Only(s.g), "canary")); got != s.g {
			s.Errorf("Find = %p, want %p", got, s.g)
		}
		if got, ok := Find[*Groups](Without(alerter(func(Event) {}), "canary")); ok {
			s.Errorf("Find in an alerter of events = %p, want nil", got)
		}
	})
}

func TestGroupsAreBounded(t *testing.T) {
	playGroups(t, nil, func(s *groupScene) {
		s.g.mu.Lock()
		defer s.g.mu.Unlock()
		of := func(i int) *group { return s.g.groupLocked(map[string]string{"entity": fmt.Sprint("e-", i)}) }
		for i := range maxGroups {
			of(i)
		}
		if of(maxGroups); len(s.g.groups) != 1 {
			s.Errorf("%d groups after one more than %d idle ones, want 1", len(s.g.groups), maxGroups)
		}
		for i := range maxGroups {
			of(i + maxGroups).since = time.Now()
		}
		a := of(0)
		a.since = time.Now()
		if b := of(1); a != b || a.labels["overflow"] != "true" || len(s.g.groups) != maxGroups+1 {
			s.Errorf("beyond %d firing groups: %v and %v of %d, want one for all others", maxGroups, a.labels, b.labels, len(s.g.groups))
		}
	})
}

func TestGroupsReportTheResultOfEachNotification(t *testing.T) {
	playGroups(t, nil, func(s *groupScene) {
		var results []error
		s.g.OnNotify(func(err error) { results = append(results, err) })
		s.miss("orders", 1)
		s.pass(time.Minute)
		if len(results) != 1 || results[0] != nil || s.g.Name() != "pager" {
			s.Errorf("%s reported %v, want one success", s.g.Name(), results)
		}
	})
}

func TestGroupsRefuseConfigurationsThatCannotWork(t *testing.T) {
	good := GroupsConfig{Sink: &pager{}, Outbox: &outbox{t: t}, Source: "sb://n", Interval: time.Second, ResolveAfter: time.Second}
	if _, err := NewGroups(good); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*GroupsConfig){
		"no sink":            func(c *GroupsConfig) { c.Sink = nil },
		"no outbox":          func(c *GroupsConfig) { c.Outbox = nil },
		"no source":          func(c *GroupsConfig) { c.Source = "" },
		"unknown label":      func(c *GroupsConfig) { c.By = []string{"color"} },
		"interval too short": func(c *GroupsConfig) { c.Interval = time.Millisecond },
		"end too early":      func(c *GroupsConfig) { c.ResolveAfter = 0 },
	} {
		bad := good
		change(&bad)
		if _, err := NewGroups(bad); err == nil {
			t.Errorf("%s: NewGroups = nil, want an error", name)
		}
	}
}

// An event that a filter keeps from a sink says nothing about the sink: a canary would hide one
// that is down.
func TestEventsThatAFilterKeepsFromASinkAreNotDelivered(t *testing.T) {
	some, err := NewSelection([]string{"orders", "b*"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	a := Without(some.Only(alerter(func(Event) {})), "Birds")
	for entity, want := range map[string]bool{"orders": true, "bills": true, "birds": false, "audit": false} {
		if got := Delivers(a, &Event{Data: EventData{Entity: entity}}); got != want {
			t.Errorf("an event about %s is delivered: %v, want %v", entity, got, want)
		}
		if Delivers(Unmuted(a), &Event{Data: EventData{Entity: entity, Muted: true}}) {
			t.Errorf("an event about %s is delivered although it is muted", entity)
		}
	}
}
