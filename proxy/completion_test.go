// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"strings"
	"testing"
	"time"
)

const propComplete = "overdue-complete-within"

// properties makes a message with these.
func properties(all map[string]any) *message {
	return &message{ID: "m1", Property: func(name string) any { return all[name] }}
}

func TestTheSecondDeadlineIsPromisedWithTheFirst(t *testing.T) {
	warned := Settings{Monitored: true, StampTTL: true, WarnBefore: []time.Duration{30 * time.Second, 5 * time.Second}}
	for _, tt := range []struct {
		name                    string
		properties              map[string]any
		ttl                     time.Duration
		settings                Settings
		by                      string // "" = no promise
		within, complete, ahead time.Duration
		says                    string
	}{
		{name: "after the first", properties: map[string]any{propWithin: "30s", propComplete: "90s"}, by: byWithin, within: 30 * time.Second, complete: 90 * time.Second},
		{name: "of the entity", properties: map[string]any{propWithin: "30s"}, settings: Settings{CompleteWithin: time.Hour}, by: byWithin, within: 30 * time.Second, complete: time.Hour},
		{name: "of the message before that of the entity", properties: map[string]any{propWithin: "30s", propComplete: "40s"}, settings: Settings{CompleteWithin: time.Hour}, by: byWithin, within: 30 * time.Second, complete: 40 * time.Second},
		{name: "before the end of a time to live", properties: map[string]any{propComplete: "40s"}, ttl: time.Minute, by: byTTL, within: time.Minute, complete: 40 * time.Second, ahead: 20 * time.Second},
		{name: "alone", properties: map[string]any{propComplete: "40s"}, settings: warned, by: byComplete, within: 40 * time.Second},
		{name: "of the entity alone", settings: Settings{CompleteWithin: time.Hour}, by: byComplete, within: time.Hour},
		{name: "before the first", properties: map[string]any{propWithin: "30s", propComplete: "30s"}, says: "overdue-complete-within has to be more than overdue-within"},
		{name: "of the entity before that of the message", properties: map[string]any{propWithin: "2h"}, settings: Settings{CompleteWithin: time.Hour}, by: byWithin, within: 2 * time.Hour, complete: time.Hour, ahead: time.Hour},
		{name: "unreadable", properties: map[string]any{propWithin: "30s", propComplete: "soon"}, says: "overdue-complete-within is"},
		{name: "unreadable, alone", properties: map[string]any{propComplete: "soon"}, says: "overdue-complete-within is"},
		{name: "warned of", properties: map[string]any{propWithin: "1m"}, settings: warned, by: byWithin, within: time.Minute, ahead: 30 * time.Second},
		{name: "too near for the first warning", properties: map[string]any{propWithin: "20s"}, settings: warned, by: byWithin, within: 20 * time.Second, ahead: 5 * time.Second},
		{name: "too near for any", properties: map[string]any{propWithin: "5s"}, settings: warned, by: byWithin, within: 5 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := properties(tt.properties)
			m.TTL = tt.ttl
			pr, ok, err := promiseOf(m, tt.settings, measured(0))
			if tt.says != "" {
				if err == nil || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("promiseOf says %v, want %q", err, tt.says)
				}
				return
			}
			if err != nil || !ok {
				t.Fatalf("promiseOf = %v, %v, want a promise", ok, err)
			}
			r := pr.ref
			if r.Stated != tt.by || r.Within != tt.within || r.CompleteWithin != tt.complete || r.Ahead != tt.ahead {
				t.Errorf("%s within %v, completed within %v, %v ahead; want %s, %v, %v, %v", r.Stated, r.Within, r.CompleteWithin, r.Ahead, tt.by, tt.within, tt.complete, tt.ahead)
			}
			if tt.by == byComplete && m.Stamp != 0 {
				t.Errorf("TTL of %v stamped for a message that is never to be expired", m.Stamp)
			}
			if pr.findable && (r.Ahead > 0 || tt.by == byComplete) {
				t.Error("a slot stands for it, but a slot becomes due only at the end of its time to live")
			}
		})
	}
}

func TestWarningsOfAnAbsoluteDeadline(t *testing.T) {
	m := properties(map[string]any{propDeadline: noon.Add(time.Minute)})
	pr, _, err := promiseOf(m, Settings{Monitored: true, WarnBefore: []time.Duration{time.Minute, 20 * time.Second}}, measured(0))
	if err != nil || pr.ref.Ahead != 20*time.Second {
		t.Errorf("promiseOf = %v ahead, %v; want 20s", pr.ref.Ahead, err)
	}
}
