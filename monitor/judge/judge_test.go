// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"testing"
	"time"

	"overdue/internal/servicebus/link"
	"overdue/monitor/search"
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

func TestJudge(t *testing.T) {
	ttl := func(d time.Duration) func(*link.Message) {
		return func(m *link.Message) { m.TimeToLive = d }
	}
	property := func(name string, v any) func(*link.Message) {
		return func(m *link.Message) { m.Properties = map[string]any{name: v} }
	}
	both := func(a, b func(*link.Message)) func(*link.Message) {
		return func(m *link.Message) { a(m); b(m) }
	}
	within := func(d time.Duration) scheduler.Reference { return scheduler.Reference{MessageID: "m", Within: d} }
	for _, tc := range []struct {
		name     string
		ref      scheduler.Reference
		message  func(*link.Message)
		settings Settings
		at       time.Duration // after the enqueued-time
		overdue  bool
		deadline time.Duration // after the enqueued-time
		native   bool
		deferred bool
	}{
		{name: "a moment before its time-to-live ends", ref: within(30 * time.Second), message: ttl(30 * time.Second), at: 30*time.Second - 1, deadline: 30 * time.Second},
		{name: "at the end of its time-to-live", ref: within(30 * time.Second), message: ttl(30 * time.Second), at: 30 * time.Second, overdue: true, deadline: 30 * time.Second, native: true},
		{name: "the default caps the time-to-live", ref: within(30 * time.Second), message: ttl(30 * time.Second), settings: Settings{DefaultMessageTimeToLive: 10 * time.Second}, at: 10 * time.Second, overdue: true, deadline: 10 * time.Second, native: true},
		{name: "the default stands in for a time-to-live", ref: within(10 * time.Second), settings: Settings{DefaultMessageTimeToLive: 10 * time.Second}, at: 10 * time.Second, overdue: true, deadline: 10 * time.Second, native: true},
		{name: "deadline before the time-to-live", ref: within(10 * time.Second), message: both(ttl(time.Minute), property("overdue-within", "10s")), at: 10 * time.Second, overdue: true, deadline: 10 * time.Second},
		{name: "the default ends its life before the deadline that it states", ref: within(30 * time.Second), message: property("overdue-within", "30s"), settings: Settings{DefaultMessageTimeToLive: 10 * time.Second}, at: 10 * time.Second, overdue: true, deadline: 10 * time.Second, native: true},
		{name: "its own time-to-live ends before the instant that it states", message: both(ttl(3*time.Second), property("overdue-deadline", noon.Add(5*time.Second))), at: 3 * time.Second, overdue: true, deadline: 3 * time.Second, native: true},
		{name: "instant, no time-to-live", message: property("overdue-deadline", noon.Add(5*time.Second)), at: 5 * time.Second, overdue: true, deadline: 5 * time.Second},
		{name: "instant, not yet", message: property("overdue-deadline", noon.Add(5*time.Second)), at: 4 * time.Second, deadline: 5 * time.Second},
		{name: "deadline of the entity", ref: within(3 * time.Second), settings: Settings{Deadline: 3 * time.Second}, at: 3 * time.Second, overdue: true, deadline: 3 * time.Second},
		{name: "deadline of the entity before its default time-to-live", ref: within(3 * time.Second), settings: Settings{Deadline: 3 * time.Second, DefaultMessageTimeToLive: time.Minute}, at: 3 * time.Second, overdue: true, deadline: 3 * time.Second},
		{name: "its own time-to-live before the deadline of the entity", ref: within(time.Minute), message: ttl(time.Minute), settings: Settings{Deadline: 3 * time.Second}, at: 3 * time.Second, deadline: time.Minute},
		{name: "deadline that only the reference knows", ref: within(3 * time.Second), at: 3 * time.Second, overdue: true, deadline: 3 * time.Second},
		{name: "the companion of another send with this id does not shorten it", ref: within(time.Second), message: ttl(time.Minute), at: 2 * time.Second, deadline: time.Minute},
		{name: "a companion that came too early by a skewed clock", ref: scheduler.Reference{Deadline: noon.Add(-10 * time.Minute), Within: 30 * time.Second}, message: ttl(30 * time.Second), at: time.Second, deadline: 30 * time.Second},
		{name: "set aside by a consumer", ref: within(time.Second), message: both(ttl(time.Second), func(m *link.Message) { m.State = link.Deferred }), at: 2 * time.Second, overdue: true, deadline: time.Second, native: true, deferred: true},
		{name: "still scheduled", ref: within(time.Second), message: both(ttl(time.Second), func(m *link.Message) {
			m.State, m.ScheduledEnqueueTime = link.Scheduled, noon.Add(time.Hour)
		}), at: 2 * time.Second, deadline: time.Hour + search.WindowMargin},
		{name: "activated, and still said to be scheduled", ref: within(time.Second), message: both(ttl(time.Second), func(m *link.Message) {
			m.State, m.ScheduledEnqueueTime = link.Scheduled, noon
		}), at: 2 * time.Second, overdue: true, deadline: time.Second, native: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := Message(&tc.ref, message(tc.message), tc.settings, noon.Add(tc.at))
			want := Judgement{Overdue: tc.overdue, Deadline: noon.Add(tc.deadline), Native: tc.native, Deferred: tc.deferred}
			if got.Overdue != want.Overdue || !got.Deadline.Equal(want.Deadline) || got.Native != want.Native || got.Deferred != want.Deferred {
				t.Errorf("Message = %+v, want %+v", got, want)
			}
		})
	}
}

// A default that was in force when the message was sent, and is not any more, may have limited it. Only
// what its sender wrote down shows that, and that may be of another message: the broker decides.
func TestADefaultThatIsNotInForceAnyMoreIsAnAssumption(t *testing.T) {
	ref := scheduler.Reference{Stated: "within", Within: 2 * time.Second, From: noon, Until: noon.Add(2 * time.Second)}
	message := &link.Message{EnqueuedTime: noon, Properties: map[string]any{"overdue-within": "30s"}}
	former := Settings{DefaultSince: noon.Add(time.Second)}
	for name, c := range map[string]struct {
		change  func(r *scheduler.Reference, m *link.Message, s *Settings)
		at      time.Duration
		want    time.Duration // the deadline
		overdue bool
	}{
		"before it ends": {nil, time.Second, 2 * time.Second, false},
		"when it ends":   {nil, 2 * time.Second, 2 * time.Second, true},
		"a time to live": {func(r *scheduler.Reference, m *link.Message, _ *Settings) {
			r.Stated, m.Properties, m.TimeToLive = "ttl", nil, 30*time.Second
		}, 2 * time.Second, 2 * time.Second, true},
		"no change since":     {func(_ *scheduler.Reference, _ *link.Message, s *Settings) { s.DefaultSince = noon.Add(-time.Hour) }, 2 * time.Second, 30 * time.Second, false},
		"nothing was limited": {func(r *scheduler.Reference, _ *link.Message, _ *Settings) { r.Within = 30 * time.Second }, 2 * time.Second, 30 * time.Second, false},
	} {
		r, m, s := ref, *message, former
		if c.change != nil {
			c.change(&r, &m, &s)
		}
		j := Message(&r, &m, s, noon.Add(c.at))
		if j.Overdue != c.overdue || !j.Deadline.Equal(noon.Add(c.want)) || j.Assumed != c.overdue {
			t.Errorf("%s: overdue %v, assumed %v, deadline %v; want overdue %v, assumed if so, deadline %v", name, j.Overdue, j.Assumed, j.Deadline, c.overdue, noon.Add(c.want))
		}
		if j.Assumed && !j.Otherwise.Equal(noon.Add(30*time.Second)) {
			t.Errorf("%s: otherwise the deadline is %v, want %v", name, j.Otherwise, noon.Add(30*time.Second))
		}
	}
}

// A default that may be newer than the message makes it overdue only if the broker says so.
func TestADefaultThatMayBeNewerThanTheMessageIsAnAssumption(t *testing.T) {
	for _, tc := range []struct {
		name      string
		ref       scheduler.Reference
		message   func(*link.Message)
		at        time.Duration
		assumed   bool
		otherwise time.Duration // after the enqueued-time
	}{
		{name: "before its own deadline", ref: scheduler.Reference{Stated: "within", Within: 30 * time.Second}, at: 20 * time.Second, assumed: true, otherwise: 30 * time.Second},
		{name: "after its own deadline", ref: scheduler.Reference{Stated: "within", Within: 30 * time.Second}, at: 30 * time.Second},
		{name: "enqueued since", ref: scheduler.Reference{Stated: "within", Within: 30 * time.Second}, message: func(m *link.Message) { m.EnqueuedTime = noon.Add(61 * time.Second) }, at: 80 * time.Second},
		{name: "enqueued when it came", ref: scheduler.Reference{Stated: "within", Within: 30 * time.Second}, message: func(m *link.Message) { m.EnqueuedTime = noon.Add(time.Minute) }, at: 75 * time.Second, assumed: true, otherwise: 90 * time.Second},
		{name: "scheduled before, by the clock of its sender", ref: scheduler.Reference{Stated: "within", Within: 30 * time.Second, Sent: noon}, message: func(m *link.Message) {
			m.EnqueuedTime = noon.Add(2 * time.Minute)
			m.ScheduledEnqueueTime = m.EnqueuedTime
		}, at: 140 * time.Second, assumed: true, otherwise: 150 * time.Second},
		{name: "with a time to live of its own", ref: scheduler.Reference{Stated: "ttl", Within: 30 * time.Second}, message: func(m *link.Message) { m.TimeToLive = 15 * time.Second }, at: 20 * time.Second},
		{name: "the companion states another default, later", ref: scheduler.Reference{Stated: "default", Within: 30 * time.Second}, at: 20 * time.Second, assumed: true, otherwise: 30 * time.Second},
		{name: "the companion states a default, of another message perhaps", ref: scheduler.Reference{Stated: "default", Within: 10 * time.Second}, at: 20 * time.Second, assumed: true, otherwise: 30 * time.Second},
		{name: "the same, a moment after it", ref: scheduler.Reference{Stated: "default", Within: 10 * time.Second}, at: 10 * time.Second, assumed: true, otherwise: 11 * time.Second},
		{name: "the same, and a consumer has deferred it", ref: scheduler.Reference{Stated: "default", Within: 10 * time.Second}, message: func(m *link.Message) { m.State = link.Deferred }, at: 10 * time.Second, assumed: true},
		{name: "the same, when no lock can last", ref: scheduler.Reference{Stated: "default", Within: 10 * time.Second}, at: 310 * time.Second, assumed: true},
		{name: "the companion states the default", ref: scheduler.Reference{Stated: "default", Within: 15 * time.Second, From: noon, Until: noon}, at: 20 * time.Second, assumed: true, otherwise: 25 * time.Second},
		{name: "the companion was derived from the message after the change", ref: scheduler.Reference{Stated: "default", Within: 10 * time.Second, Sent: noon, From: noon, Until: noon}, at: 10 * time.Second, assumed: true, otherwise: 11 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := Settings{DefaultMessageTimeToLive: 10 * time.Second, DefaultSince: noon.Add(time.Minute)}
			got := Message(&tc.ref, message(tc.message), s, noon.Add(tc.at))
			var otherwise time.Time
			if tc.otherwise > 0 {
				otherwise = noon.Add(tc.otherwise)
			}
			if !got.Overdue || got.Assumed != tc.assumed || !got.Otherwise.Equal(otherwise) {
				t.Errorf("Message = %+v, want overdue, assumed %v, and otherwise %v", got, tc.assumed, otherwise)
			}
		})
	}
}

// A reference may be of another message with the same id. That is a message of another
// subscription, whose default is none of this one's, or of another send. A deadline that only the
// reference states never dead-letters a message.
func TestWhatOnlyAReferenceSaysIsAssumed(t *testing.T) {
	changed := noon.Add(-time.Minute)
	scheduled := func(life time.Duration) *link.Message {
		return message(func(m *link.Message) { m.TimeToLive, m.ScheduledEnqueueTime = life, noon })
	}
	of := func(from, sent time.Time, stated string) scheduler.Reference {
		return scheduler.Reference{MessageID: "m", From: from, Until: from.Add(time.Second), Sent: sent, Within: 2 * time.Second, Stated: stated}
	}
	late := Settings{DefaultMessageTimeToLive: 2 * time.Second, DefaultSince: changed}
	for _, c := range []struct {
		name     string
		ref      scheduler.Reference
		message  *link.Message
		settings Settings
		assumed  bool
	}{
		{"default of another subscription", of(noon, noon, "default"), message(nil), Settings{}, true},
		{"the same, where it is the entity's", of(noon, noon, "default"), message(nil), Settings{DefaultMessageTimeToLive: 2 * time.Second}, false},
		{"default that was removed before the message came", of(noon.Add(-time.Second), noon.Add(-time.Second), "default"), message(nil), Settings{DefaultSince: noon}, true},
		{"default that was removed later", of(noon.Add(-time.Second), noon.Add(-time.Second), "default"), message(nil), Settings{DefaultSince: noon.Add(time.Second)}, true},
		{"scheduled long before, and the reference was derived from it", of(noon, noon, "default"), scheduled(0), Settings{DefaultMessageTimeToLive: 2 * time.Second, DefaultSince: noon.Add(-24 * time.Hour)}, true},
		{"deadline of the entity", of(noon, noon, "default"), message(nil), Settings{Deadline: 2 * time.Second}, false},
		{"scheduled after the default was lowered", of(noon, changed.Add(time.Second), "ttl"), scheduled(time.Hour), late, false},
		{"scheduled, and the reference is of another send", of(noon.Add(-300*time.Millisecond), noon.Add(-300*time.Millisecond), "within"), scheduled(time.Hour), late, true},
		{"scheduled, and the reference was derived from another one", of(noon, noon, "within"), scheduled(time.Hour), late, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Message(&c.ref, c.message, c.settings, noon.Add(3*time.Second))
			if !got.Overdue || got.Assumed != c.assumed {
				t.Errorf("%+v, want one that is overdue, assumed %v", got, c.assumed)
			}
		})
	}
}
