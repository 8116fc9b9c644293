// SPDX-License-Identifier: Apache-2.0

package mute

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"overdue/scheduler"
)

// A mute may wait for a month, so each version is read for ever. The file is as programs of that
// version write it; it is never changed.
func TestMutesOfEarlierVersionsAreRead(t *testing.T) {
	since := time.Date(2026, 11, 30, 10, 44, 8, 506_000_000, time.UTC)
	want := Mute{
		Entity: "events/Subscriptions/audit",
		Since:  since,
		Until:  since.Add(2 * time.Hour),
		By:     "ann",
		Reason: "moving the consumers",
	}
	text, err := os.ReadFile("testdata/v1.json")
	if err != nil {
		t.Fatal(err)
	}
	got, err := parse(text)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("parse = %v (-want +got):\n%s", err, diff)
	}
	written, err := want.marshal()
	if diff := cmp.Diff(string(text), string(written)); diff != "" || err != nil {
		t.Errorf("marshal = %v (-want +got):\n%s", err, diff)
	}
}

// Releases that know no mutes take a note that is due for a companion. They refuse it, which costs
// nothing: it is over.
func TestEarlierReleasesRefuseAMuteThatIsOver(t *testing.T) {
	text, err := os.ReadFile("testdata/v1.json")
	if err != nil {
		t.Fatal(err)
	}
	if c, err := scheduler.ParseCompanion(text); err == nil {
		t.Errorf("a mute is read as the companion %+v", c)
	}
}

func TestAMuteIsBounded(t *testing.T) {
	now := time.Now().UTC()
	good := func() Mute { return Mute{Entity: "orders", Since: now, Until: now.Add(MaxFor)} }
	m := good()
	if body, err := m.marshal(); err != nil {
		t.Error(err)
	} else if _, err := parse(body); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Mute){
		"no entity":          func(m *Mute) { m.Entity = "" },
		"a long entity":      func(m *Mute) { m.Entity = strings.Repeat("o", maxEntity+1) },
		"a long name":        func(m *Mute) { m.By = strings.Repeat("o", MaxText+1) },
		"a long reason":      func(m *Mute) { m.Reason = strings.Repeat("o", MaxText+1) },
		"no begin":           func(m *Mute) { m.Since = time.Time{} },
		"an end before that": func(m *Mute) { m.Until = m.Since.Add(-time.Second) },
		"a late end":         func(m *Mute) { m.Until = m.Since.Add(MaxFor + time.Second) },
	} {
		m := good()
		change(&m)
		if err := m.check(); err == nil {
			t.Errorf("a mute with %s is accepted", name)
		}
	}
	for _, text := range []string{"", "[]", `{"version":2,"entity":"orders"}`, `{"version":1}`, strings.Repeat(" ", maxBody+1)} {
		if m, err := parse([]byte(text)); err == nil {
			t.Errorf("%.40q is read as %+v", text, m)
		}
	}
}

func TestAMuteOfATopicCoversItsSubscriptions(t *testing.T) {
	for _, c := range []struct {
		entity, path string
		want         bool
	}{
		{"orders", "Orders", true},
		{"orders", "orders2", false},
		{"events", "events/Subscriptions/audit", true},
		{"Events/subscriptions/audit", "events/Subscriptions/audit", true},
		{"events/Subscriptions/audit", "events/Subscriptions/audits", false},
		{"events/Subscriptions/audit", "events", false},
	} {
		m := Mute{Entity: c.entity}
		if got := m.Covers(c.path); got != c.want {
			t.Errorf("a mute of %s covers %s: %v, want %v", c.entity, c.path, got, c.want)
		}
	}
}
