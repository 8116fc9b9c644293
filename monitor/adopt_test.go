// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/servicebus/link"
	"overdue/scheduler"
)

// Of two lines of notes the greater one ends, and of two notes of one line the one that comes
// later, at whichever worker meets both; what is old news to nobody goes on.
func TestTwoSeriesOfAdoptNotesBecomeOne(t *testing.T) {
	a := Adoption{Entity: "Orders", Every: time.Minute}
	w := &Worker{adoptions: map[string]adoption{"orders": {Adoption: a}}}
	note := func(line string, turn int64) adoptNote { return adoptNote{Entity: "orders", Series: line, Turn: turn} }
	for i, step := range []struct {
		n    adoptNote
		at   time.Duration
		want bool
	}{
		{note("b", 7), 0, true},
		{note("c", 1), time.Second, false},
		{note("b", 7), 2 * time.Second, false},
		{note("b", 8), time.Minute, true},
		{note("a", 1), time.Minute, true}, // it goes on, and b ends
		{note("b", 9), 2 * time.Minute, false},
		{note("a", 2), 2 * time.Minute, true},
		{note("b", 12), 2*time.Minute + noteTwin*a.Every, true}, // a is lost, or elsewhere
		{note("other", 1), 3 * time.Minute, true},
	} {
		if i == 8 {
			step.n.Entity = "bills"
			step.want = false
		}
		if got, ok := w.admitNote(step.n, noon.Add(step.at)); ok != step.want || ok && got != a {
			t.Errorf("step %d: admit(%+v) = %+v, %v; want %v", i, step.n, got, ok, step.want)
		}
	}
	w.readmitNote(note("b", 12))
	if _, ok := w.admitNote(note("b", 12), noon.Add(3*time.Minute+noteTwin*a.Every)); !ok {
		t.Error("a note that could not be rewritten is not accepted again")
	}
}

func TestAdoptNotesAreBounded(t *testing.T) {
	good := adoptNote{Version: adoptNoteVersion, Entity: "orders", Series: "l", Turn: 3, Positions: map[string]position{"": {Next: 7, Enqueued: noon}}}
	body, err := json.Marshal(good)
	if err != nil {
		t.Fatal(err)
	}
	got, err := parseAdoptNote(body)
	if diff := cmp.Diff(good, got); diff != "" || err != nil {
		t.Errorf("%v, note (-want +got):\n%s", err, diff)
	}
	places := map[string]position{}
	for i := range maxAdoptedPaths + 1 {
		places[strings.Repeat("s", i)] = position{}
	}
	for _, change := range []func(*adoptNote){
		func(n *adoptNote) { n.Version = 2 },
		func(n *adoptNote) { n.Entity = "" },
		func(n *adoptNote) { n.Series = "" },
		func(n *adoptNote) { n.Series = strings.Repeat("l", 65) },
		func(n *adoptNote) { n.Turn = -1 },
		func(n *adoptNote) { n.Positions = places },
	} {
		n := good
		change(&n)
		body, err := json.Marshal(n)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseAdoptNote(body); err == nil {
			t.Errorf("%.80s was taken", body)
		}
	}
	if _, err := parseAdoptNote(make([]byte, maxNoteSize+1)); err == nil {
		t.Error("a note of any length was taken")
	}
}

func TestReferencesOfAdoptedMessages(t *testing.T) {
	base := scheduler.Reference{MessageID: "m", Once: true, Sent: noon, From: noon, Until: noon}
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
		s    Settings
		want *scheduler.Reference
	}{
		{"nothing", message(nil), Settings{}, nil},
		{"scheduled", message(func(m *link.Message) {
			m.State, m.ScheduledEnqueueTime, m.TimeToLive = link.Scheduled, noon.Add(time.Hour), time.Minute
		}), Settings{}, nil},
		{"a time to live", ttl, Settings{}, in("ttl", 30*time.Second)},
		{"that is capped", ttl, Settings{DefaultMessageTimeToLive: 10 * time.Second}, in("ttl", 10*time.Second)},
		{"that of the entity", message(nil), Settings{DefaultMessageTimeToLive: 10 * time.Second}, in("default", 10*time.Second)},
		{"the entity's deadline", message(nil), Settings{Deadline: 5 * time.Second, DefaultMessageTimeToLive: 10 * time.Second}, in("entity", 5*time.Second)},
		{"within", property("overdue-within", "7s"), Settings{}, in("within", 7*time.Second)},
		{"an instant", property("overdue-deadline", noon.Add(time.Minute)), Settings{}, ref(func(r *scheduler.Reference) { r.Stated, r.Deadline = "deadline", noon.Add(time.Minute) })},
		{"to be completed", property("overdue-complete-within", "7s"), Settings{WarnBefore: []time.Duration{time.Second}}, in(scheduler.StatedComplete, 7*time.Second)},
		{"both", ttl, Settings{CompleteWithin: time.Minute}, ref(func(r *scheduler.Reference) {
			*r = *in("ttl", 30*time.Second)
			r.CompleteWithin = time.Minute
		})},
		{"completed first", ttl, Settings{CompleteWithin: 20 * time.Second}, ref(func(r *scheduler.Reference) {
			*r = *in("ttl", 30*time.Second)
			r.CompleteWithin, r.Ahead = 20*time.Second, 10*time.Second
		})},
		{"a warning that is over, and one that is not", ttl, Settings{WarnBefore: []time.Duration{29 * time.Second, 20 * time.Second, 5 * time.Second}}, ref(func(r *scheduler.Reference) {
			*r = *in("ttl", 30*time.Second)
			r.Ahead = 20 * time.Second
		})},
	} {
		got, ok := adopted(tc.m, tc.s, noon.Add(3*time.Second))
		if ok != (tc.want != nil) {
			t.Errorf("%s: adopted = %v", tc.name, ok)
		} else if ok {
			if diff := cmp.Diff(*tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.name, diff)
			}
		}
	}
}
