// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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

// Of two lines of notes the greater one ends, and of two notes of one line the one that comes
// later, at whichever worker meets both; what is old news to nobody goes on.
func TestTwoSeriesOfAdoptNotesBecomeOne(t *testing.T) {
	e := Entity{Entity: "Orders", Every: time.Minute}
	a := New(Config{})
	a.Set([]Entity{e})
	in := func(line string, turn int64) note { return note{Entity: "orders", Series: line, Turn: turn} }
	for i, step := range []struct {
		n    note
		at   time.Duration
		want bool
	}{
		{in("b", 7), 0, true},
		{in("c", 1), time.Second, false},
		{in("b", 7), 2 * time.Second, false},
		{in("b", 8), time.Minute, true},
		{in("a", 1), time.Minute, true}, // it goes on, and b ends
		{in("b", 9), 2 * time.Minute, false},
		{in("a", 2), 2 * time.Minute, true},
		{in("b", 12), 2*time.Minute + twinFor*e.Every, true}, // a is lost, or elsewhere
		{in("other", 1), 3 * time.Minute, true},
	} {
		if i == 8 {
			step.n.Entity = "bills"
			step.want = false
		}
		if got, ok := a.admit(step.n, noon.Add(step.at)); ok != step.want || ok && got != e {
			t.Errorf("step %d: admit(%+v) = %+v, %v; want %v", i, step.n, got, ok, step.want)
		}
	}
	a.readmit(in("b", 12))
	if _, ok := a.admit(in("b", 12), noon.Add(3*time.Minute+twinFor*e.Every)); !ok {
		t.Error("a note that could not be rewritten is not accepted again")
	}
}

func TestAdoptNotesAreBounded(t *testing.T) {
	good := note{Version: noteVersion, Entity: "orders", Series: "l", Turn: 3, Positions: map[string]position{"": {Next: 7, Enqueued: noon}}}
	body, err := json.Marshal(good)
	if err != nil {
		t.Fatal(err)
	}
	got, err := parseNote(body)
	if diff := cmp.Diff(good, got); diff != "" || err != nil {
		t.Errorf("%v, note (-want +got):\n%s", err, diff)
	}
	places := map[string]position{}
	for i := range maxPaths + 1 {
		places[strings.Repeat("s", i)] = position{}
	}
	for _, change := range []func(*note){
		func(n *note) { n.Version = 2 },
		func(n *note) { n.Entity = "" },
		func(n *note) { n.Series = "" },
		func(n *note) { n.Series = strings.Repeat("l", 65) },
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
