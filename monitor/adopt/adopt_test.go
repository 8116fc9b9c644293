// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/link"
	"overdue/monitor/judge"
	"overdue/scheduler"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

func message(change func(*link.Message)) *link.Message {
	m := &link.Message{MessageID: "m", EnqueuedTime: noon, SequenceNumber: 7}
	if change != nil {
		change(m)
	}
	return m
}

// Of two notes of an entity the one that is behind ends, at whichever worker meets both. What is
// old news to nobody goes on.
func TestTwoSeriesOfAdoptNotesBecomeOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every = time.Minute
		a, began := New(Config{}), time.Now()
		a.Set([]Entity{{Entity: "Orders", Every: every}})
		for i, step := range []struct {
			entity string
			turn   int64
			at     time.Duration
			want   bool
		}{
			{"orders", 7, 0, true},
			{"orders", 1, time.Second, false},     // of a worker that has found no note
			{"orders", 7, 2 * time.Second, false}, // that was written twice
			{"orders", 8, every, true},
			{"orders", 2, 11 * every, true}, // the other one is lost
			{"bills", 1, 20 * every, false},
		} {
			time.Sleep(time.Until(began.Add(step.at)))
			n := note{Entity: step.entity, Turn: step.turn}
			got, ok := a.admit(n)
			if ok != step.want || ok && got != every {
				t.Errorf("step %d: admit(%+v) = %v, %v, want %v", i, n, got, ok, step.want)
			}
			if ok {
				a.sawNote(n, n.Turn)
			}
		}
	})
}

func TestAdoptNotesAreBounded(t *testing.T) {
	good := note{Version: 1, Entity: "orders", Series: "l", Turn: 3, Positions: map[string]position{"": {Next: 7, Enqueued: noon}}}
	body, err := json.Marshal(good)
	if err != nil {
		t.Fatal(err)
	}
	got, err := parseNote(body)
	if diff := cmp.Diff(good, got); diff != "" || err != nil {
		t.Errorf("%v, note (-want +got):\n%s", err, diff)
	}
	places := map[string]position{}
	for i := range 2001 {
		places[strings.Repeat("s", i)] = position{}
	}
	for _, change := range []func(*note){
		func(n *note) { n.Version = 2 },
		func(n *note) { n.Entity = "" },
		func(n *note) { n.Series = "" },
		func(n *note) { n.Turn = -1 },
		func(n *note) { n.Positions = places },
	} {
		n := good
		change(&n)
		body, err := json.Marshal(n)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseNote(body); err == nil {
			t.Errorf("%.80s was taken", body)
		}
	}
	if _, err := parseNote(make([]byte, maxNoteSize+1)); err == nil {
		t.Error("a note of any length was taken")
	}
}

// The default time to live counts from the change on, and only if companions may be due by another.
func TestSettingsThatAreRequested(t *testing.T) {
	life := time.Minute
	info := func(updated time.Time, life time.Duration, subscriptions ...entities.Subscription) *entities.Info {
		return &entities.Info{CreatedAt: noon.Add(-24 * time.Hour), UpdatedAt: updated, DefaultMessageTimeToLive: life, Subscriptions: subscriptions}
	}
	for _, tc := range []struct {
		name   string
		before *entities.Info // nil: it was not described before
		after  *entities.Info
		want   bool
	}{
		{name: "changed a moment ago", after: info(noon, life), want: true},
		{name: "changed long ago", after: info(noon.Add(-time.Hour), life)},
		{name: "made a moment ago", after: &entities.Info{CreatedAt: noon, UpdatedAt: noon, DefaultMessageTimeToLive: life}},
		{name: "as it was", before: info(noon, life), after: info(noon, life)},
		{name: "changed", before: info(noon.Add(-time.Hour), 2*life), after: info(noon, life), want: true},
		{name: "without a default", before: info(noon.Add(-time.Hour), life), after: info(noon, 0)},
		{name: "a subscription changed", before: info(noon.Add(-time.Hour), 0), after: info(noon.Add(-time.Hour), 0, entities.Subscription{DefaultMessageTimeToLive: life, UpdatedAt: noon}), want: true},
		{name: "not described", before: info(noon, life), after: info(time.Time{}, 0)},
	} {
		a := New(Config{Latest: func() time.Time { return noon.Add(time.Second) }})
		if tc.before != nil {
			a.Saw("Orders", tc.before)
			a.requested = nil
		}
		a.Saw("orders", tc.after)
		if got := len(a.requested) > 0; got != tc.want {
			t.Errorf("%s: read %v, want %v", tc.name, got, tc.want)
		}
		a.requested = nil
		if a.Saw("ORDERS", tc.after); len(a.requested) > 0 {
			t.Errorf("%s: read twice, want once for each change", tc.name)
		}
	}
}

// Subscriptions that change one after the other, and are described together, are covered each from
// its own change on.
func TestSubscriptionsThatChangeTogetherAreRequestedSinceTheFirst(t *testing.T) {
	info := func(changed ...time.Duration) *entities.Info {
		i := &entities.Info{Kind: entities.Topic, CreatedAt: noon, UpdatedAt: noon}
		for _, after := range changed {
			i.Subscriptions = append(i.Subscriptions, entities.Subscription{CreatedAt: noon, UpdatedAt: noon.Add(after), DefaultMessageTimeToLive: time.Minute})
		}
		return i
	}
	a := New(Config{Latest: func() time.Time { return noon }})
	a.Saw("t", info(0, 0, 0))
	a.Saw("t", info(0, 7*time.Second, 5*time.Second))
	for _, n := range a.requested {
		if want := sinceChange(noon.Add(5 * time.Second)); !n.Request.Since.Equal(want) {
			t.Errorf("requested since %v, want %v", n.Request.Since, want)
		}
	}
	if len(a.requested) != 1 {
		t.Errorf("%d requests, want one", len(a.requested))
	}
}

func TestReferencesOfAdoptedMessages(t *testing.T) {
	base := scheduler.Reference{MessageID: "m", Sent: noon, From: noon, Until: noon}
	ref := func(change func(*scheduler.Reference)) *scheduler.Reference {
		r := base
		change(&r)
		return &r
	}
	in := func(by string, d time.Duration) *scheduler.Reference {
		return ref(func(r *scheduler.Reference) { r.Stated, r.Within, r.Deadline = by, d, noon.Add(d) })
	}
	property := func(name string, v any) *link.Message {
		return message(func(m *link.Message) { m.Properties = map[string]any{name: v} })
	}
	ttl := message(func(m *link.Message) { m.TimeToLive = 30 * time.Second })
	for _, tc := range []struct {
		name string
		m    *link.Message
		s    judge.Settings
		want *scheduler.Reference
	}{
		{"nothing", message(nil), judge.Settings{}, nil},
		{"scheduled", message(func(m *link.Message) {
			m.State, m.ScheduledEnqueueTime, m.TimeToLive = link.Scheduled, noon.Add(time.Hour), time.Minute
		}), judge.Settings{}, nil},
		{"a time to live", ttl, judge.Settings{}, in("ttl", 30*time.Second)},
		{"that is capped", ttl, judge.Settings{DefaultMessageTimeToLive: 10 * time.Second}, in("ttl", 10*time.Second)},
		{"that of the entity", message(nil), judge.Settings{DefaultMessageTimeToLive: 10 * time.Second}, in("default", 10*time.Second)},
		{"the entity's deadline", message(nil), judge.Settings{Deadline: 5 * time.Second, DefaultMessageTimeToLive: 10 * time.Second}, in("entity", 5*time.Second)},
		{"within", property("overdue-within", "7s"), judge.Settings{}, in("within", 7*time.Second)},
		{"an instant", property("overdue-deadline", noon.Add(time.Minute)), judge.Settings{}, ref(func(r *scheduler.Reference) { r.Stated, r.Deadline = "deadline", noon.Add(time.Minute) })},
		{"to be completed", property("overdue-complete-within", "7s"), judge.Settings{WarnBefore: []time.Duration{time.Second}}, in(scheduler.StatedComplete, 7*time.Second)},
		{"both", ttl, judge.Settings{CompleteWithin: time.Minute}, ref(func(r *scheduler.Reference) {
			*r = *in("ttl", 30*time.Second)
			r.CompleteWithin = time.Minute
		})},
		{"completed first", ttl, judge.Settings{CompleteWithin: 20 * time.Second}, ref(func(r *scheduler.Reference) {
			*r = *in("ttl", 30*time.Second)
			r.CompleteWithin, r.Ahead = 20*time.Second, 10*time.Second
		})},
		{"a warning that is over, and one that is not", ttl, judge.Settings{WarnBefore: []time.Duration{29 * time.Second, 20 * time.Second, 5 * time.Second}}, ref(func(r *scheduler.Reference) {
			*r = *in("ttl", 30*time.Second)
			r.Ahead = 20 * time.Second
		})},
	} {
		got, ok := reference(tc.m, tc.s, noon.Add(3*time.Second))
		if ok != (tc.want != nil) {
			t.Errorf("%s: reference = %v", tc.name, ok)
		} else if ok {
			if diff := cmp.Diff(*tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.name, diff)
			}
		}
	}
}
