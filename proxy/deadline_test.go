// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/amqp"
	"overdue/scheduler"
)

const (
	propDeadline = "overdue-deadline"
	propWithin   = "overdue-within"
	propExpiry   = "ce-expirytime"
)

// noon is the broker's clock in these tests, with a fraction that a wire would cut.
var noon = time.Date(2026, 1, 31, 12, 0, 0, 250_000, time.UTC)

func measured(uncertainty time.Duration) scheduler.Instant {
	return scheduler.Instant{Time: noon, Measured: true, Uncertainty: uncertainty}
}

// with makes a message with one application property, or none.
func with(name string, value any) *message {
	return &message{ID: "m1", SessionID: "s1", Property: func(n string) any {
		if n == name {
			return value
		}
		return nil
	}}
}

func TestTheFirstStatementOfADeadlineCounts(t *testing.T) {
	all := map[string]any{
		propDeadline: "2026-01-31T12:00:10Z", propWithin: "20s", propExpiry: "2026-01-31T12:00:30Z",
	}
	settings := Settings{Monitored: true, Deadline: 50 * time.Second, DefaultMessageTimeToLive: time.Minute}
	for _, tt := range []struct {
		name       string
		properties []string
		ttl        time.Duration
		settings   Settings
		by         string
		want       time.Duration // from noon, or within
	}{
		{"everything", []string{propDeadline, propWithin, propExpiry}, 40 * time.Second, settings, byDeadline, 10*time.Second - 250*time.Microsecond},
		{"within and below", []string{propWithin, propExpiry}, 40 * time.Second, settings, byWithin, 20 * time.Second},
		{"expirytime and below", []string{propExpiry}, 40 * time.Second, settings, byDeadline, 30*time.Second - 250*time.Microsecond},
		{"TTL and below", nil, 40 * time.Second, settings, byTTL, 40 * time.Second},
		{"entity and below", nil, 0, settings, byEntity, 50 * time.Second},
		{"default TTL alone", nil, 0, Settings{DefaultMessageTimeToLive: time.Minute}, byDefault, time.Minute},
		{"TTL above the default TTL", nil, time.Hour, Settings{DefaultMessageTimeToLive: time.Minute}, byTTL, time.Minute},
		{"TTL of a copy before that of the message", nil, time.Hour, Settings{SubscriptionTimeToLive: time.Minute, DefaultMessageTimeToLive: 2 * time.Minute}, byTTL, time.Minute},
		{"TTL of a copy alone", nil, 0, Settings{SubscriptionTimeToLive: time.Minute}, byDefault, time.Minute},
		{"TTL with a default TTL that is none", nil, time.Hour, Settings{DefaultMessageTimeToLive: math.MaxInt64}, byTTL, time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := &message{ID: "m1", TTL: tt.ttl, Property: func(name string) any {
				for _, p := range tt.properties {
					if p == name {
						return all[name]
					}
				}
				return nil
			}}
			pr, ok, err := promiseOf(m, tt.settings, measured(0))
			if err != nil || !ok {
				t.Fatalf("promiseOf = %v, %v, want a promise", ok, err)
			}
			if pr.ref.Stated != tt.by {
				t.Errorf("stated by %q, want %q", pr.ref.Stated, tt.by)
			}
			got := pr.ref.Within
			if got == 0 {
				got = pr.ref.Deadline.Sub(noon)
			}
			if got != tt.want {
				t.Errorf("deadline in %v, want %v", got, tt.want)
			}
			if m.Stamp != 0 {
				t.Errorf("TTL of %v stamped without StampTTL, want none", m.Stamp)
			}
		})
	}
}

func TestAMessageWithoutADeadlineGetsNoPromise(t *testing.T) {
	for name, s := range map[string]Settings{
		"nothing is configured":       {Monitored: true, StampTTL: true},
		"the default TTL is for ever": {Monitored: true, StampTTL: true, DefaultMessageTimeToLive: math.MaxInt64},
	} {
		m := with("", nil)
		if _, ok, err := promiseOf(m, s, measured(0)); ok || err != nil {
			t.Errorf("%s: promiseOf = %v, %v, want no promise", name, ok, err)
		}
		if m.Stamp != 0 {
			t.Errorf("%s: TTL of %v stamped, want none", name, m.Stamp)
		}
	}
}

func TestADeadlineOfMoreThanAHundredYearsIsNone(t *testing.T) {
	for within, want := range map[time.Duration]bool{maxDeadline: true, maxDeadline + 1: false} {
		m := &message{ID: "m", TTL: within}
		if _, ok, err := promiseOf(m, Settings{Monitored: true}, measured(0)); ok != want || err != nil {
			t.Errorf("a time to live of %v: promiseOf = %v, %v, want a promise: %v", within, ok, err, want)
		}
	}
}

func TestTheTTLIsStampedWhereTheDeadlineComesFirst(t *testing.T) {
	at := func(d time.Duration) string { return noon.Add(d).Format(time.RFC3339Nano) }
	scheduled := noon.Truncate(time.Millisecond).Add(time.Minute)
	for _, tt := range []struct {
		name      string
		property  string
		value     any
		ttl       time.Duration
		scheduled time.Time
		settings  Settings
		now       scheduler.Instant
		want      time.Duration
	}{
		{"relative, no TTL", propWithin, "30s", 0, time.Time{}, Settings{StampTTL: true}, measured(0), 30 * time.Second},
		{"relative, clock unknown", propWithin, "30s", 0, time.Time{}, Settings{StampTTL: true}, scheduler.Instant{Time: noon}, 30 * time.Second},
		{"relative, part of a millisecond", propWithin, "1500us", 0, time.Time{}, Settings{StampTTL: true}, measured(0), 2 * time.Millisecond},
		{"relative, longer TTL", propWithin, "30s", time.Minute, time.Time{}, Settings{StampTTL: true}, measured(0), 30 * time.Second},
		{"relative, shorter TTL", propWithin, "30s", time.Second, time.Time{}, Settings{StampTTL: true}, measured(0), 0},
		{"relative, equal TTL", propWithin, "30s", 30 * time.Second, time.Time{}, Settings{StampTTL: true}, measured(0), 0},
		{"relative, shorter default TTL", propWithin, "30s", 0, time.Time{}, Settings{StampTTL: true, DefaultMessageTimeToLive: time.Second}, measured(0), 0},
		{"relative, longer default TTL", propWithin, "30s", 0, time.Time{}, Settings{StampTTL: true, DefaultMessageTimeToLive: time.Hour}, measured(0), 30 * time.Second},
		{"relative, before the end of a copy", propWithin, "30s", time.Hour, time.Time{}, Settings{StampTTL: true, SubscriptionTimeToLive: time.Second}, measured(0), 30 * time.Second},
		{"none but the end of a copy", "", nil, time.Hour, time.Time{}, Settings{StampTTL: true, SubscriptionTimeToLive: time.Second}, measured(0), 0},
		{"relative, stamping is off", propWithin, "30s", 0, time.Time{}, Settings{}, measured(0), 0},
		{"relative, scheduled", propWithin, "30s", 0, scheduled, Settings{StampTTL: true}, measured(0), 30 * time.Second},
		{"relative, longer than a header holds", propWithin, "1200h", 0, time.Time{}, Settings{StampTTL: true}, measured(0), 0},
		{"entity's deadline", "", nil, 0, time.Time{}, Settings{StampTTL: true, Deadline: 5 * time.Second}, measured(0), 5 * time.Second},
		{"entity's deadline, the TTL counts first", "", nil, 10 * time.Second, time.Time{}, Settings{StampTTL: true, Deadline: 5 * time.Second}, measured(0), 0},
		{"default TTL", "", nil, 0, time.Time{}, Settings{StampTTL: true, DefaultMessageTimeToLive: time.Minute}, measured(0), 0},
		// noon has 250 µs, which the earliest stamp does not.
		{"absolute, clock exact", propDeadline, at(10 * time.Second), 0, time.Time{}, Settings{StampTTL: true}, measured(0), 10*time.Second + time.Millisecond},
		{"absolute, clock uncertain", propDeadline, at(10 * time.Second), 0, time.Time{}, Settings{StampTTL: true}, measured(7 * time.Millisecond), 10*time.Second + 8*time.Millisecond},
		{"absolute, clock unknown", propDeadline, at(10 * time.Second), 0, time.Time{}, Settings{StampTTL: true}, scheduler.Instant{Time: noon}, 0},
		{"absolute, shorter TTL", propDeadline, at(10 * time.Second), time.Second, time.Time{}, Settings{StampTTL: true}, measured(0), 0},
		{"absolute, within the uncertainty", propDeadline, at(-time.Millisecond), 0, time.Time{}, Settings{StampTTL: true}, measured(time.Millisecond), time.Millisecond},
		{"absolute, scheduled", propDeadline, at(70 * time.Second), 0, scheduled, Settings{StampTTL: true}, measured(time.Second), 10*time.Second + time.Millisecond},
		{"absolute, scheduled, clock unknown", propDeadline, at(70 * time.Second), 0, scheduled, Settings{StampTTL: true}, scheduler.Instant{Time: noon}, 10*time.Second + time.Millisecond},
		{"absolute, beyond what a header holds", propDeadline, at(1200 * time.Hour), 0, time.Time{}, Settings{StampTTL: true}, measured(0), 0},
		{"absolute, scheduled in the year 1, clock unknown", propDeadline, at(time.Hour), 0, time.Time{}.Add(time.Hour), Settings{StampTTL: true}, scheduler.Instant{Time: noon}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := with(tt.property, tt.value)
			m.TTL, m.ScheduledEnqueueTime = tt.ttl, tt.scheduled
			if _, _, err := promiseOf(m, tt.settings, tt.now); err != nil {
				t.Fatal(err)
			}
			if m.Stamp != tt.want {
				t.Errorf("stamped %v, want %v", m.Stamp, tt.want)
			}
		})
	}
}

// The sidecar's clock is wrong by skew, the broker's is right, and the message arrives after some
// time on the way. The test compares the broker's expiry by that TTL with the deadline, for every
// way to know the broker's clock.
func TestTheBrokerNeverExpiresBeforeTheDeadlineWhateverTheSkew(t *testing.T) {
	for _, skew := range []time.Duration{0, time.Millisecond, 10 * time.Minute, -10 * time.Minute} {
		for _, uncertainty := range []time.Duration{0, 3 * time.Millisecond, time.Second} {
			// The true clock is anywhere within the uncertainty of what was measured.
			for _, off := range []time.Duration{-uncertainty, 0, uncertainty} {
				for _, way := range []time.Duration{0, 700 * time.Microsecond, 40 * time.Millisecond, 3 * time.Second} {
					for _, isMeasured := range []bool{true, false} {
						broker := noon.Add(off) // the broker's clock at the send
						now := scheduler.Instant{Time: noon.Add(skew)}
						if isMeasured {
							now = measured(uncertainty)
						}
						m := with(propDeadline, noon.Add(30*time.Minute))
						pr, ok, err := promiseOf(m, Settings{StampTTL: true}, now)
						if err != nil || !ok {
							t.Fatalf("promiseOf = %v, %v, want a promise", ok, err)
						}
						stamp := broker.Add(way).Truncate(time.Millisecond)
						if m.Stamp > 0 && stamp.Add(m.Stamp).Before(pr.ref.Deadline) {
							t.Errorf("skew %v, uncertainty %v, off %v, way %v: expires %v before the deadline",
								skew, uncertainty, off, way, pr.ref.Deadline.Sub(stamp.Add(m.Stamp)))
						}
						if isMeasured && m.Stamp == 0 {
							t.Errorf("skew %v: no TTL stamped though the clock is known", skew)
						}
						if !isMeasured && m.Stamp != 0 {
							t.Errorf("skew %v: TTL of %v stamped though the clock is unknown", skew, m.Stamp)
						}
						if isMeasured && way <= sendWindow && (stamp.Before(pr.ref.From) || stamp.After(pr.ref.Until)) {
							t.Errorf("stamp %v is outside of the window %v to %v", stamp, pr.ref.From, pr.ref.Until)
						}
					}
				}
			}
		}
	}
}

func TestTheReferenceSaysWhatIsKnown(t *testing.T) {
	scheduled := noon.Truncate(time.Millisecond).Add(time.Hour)
	floor := noon.Add(-5 * time.Millisecond).Truncate(time.Millisecond)
	until := noon.Add(5*time.Millisecond + sendWindow)
	for _, tt := range []struct {
		name      string
		m         *message
		scheduled time.Time
		now       scheduler.Instant
		want      scheduler.Reference
	}{
		{"relative", with(propWithin, "30s"), time.Time{}, measured(5 * time.Millisecond), scheduler.Reference{
			Sent: noon, From: floor, Until: until, Deadline: noon.Add(30 * time.Second), Within: 30 * time.Second, Stated: byWithin,
		}},
		{"absolute", with(propDeadline, noon.Add(time.Minute)), time.Time{}, measured(5 * time.Millisecond), scheduler.Reference{
			Sent: noon, From: floor, Until: until, Deadline: noon.Add(time.Minute), Stated: byDeadline,
		}},
		{"clock unknown", with(propWithin, "30s"), time.Time{}, scheduler.Instant{Time: noon}, scheduler.Reference{
			Sent: noon, Deadline: noon.Add(30 * time.Second), Within: 30 * time.Second, Stated: byWithin,
		}},
		{"scheduled", with(propWithin, "30s"), scheduled, measured(5 * time.Millisecond), scheduler.Reference{
			Sent: noon, From: scheduled, Until: scheduled.Add(activationWindow),
			Deadline: scheduled.Add(30 * time.Second), Within: 30 * time.Second, Stated: byWithin,
		}},
		{"scheduled for the past", with(propWithin, "30s"), noon.Add(-time.Hour), measured(5 * time.Millisecond), scheduler.Reference{
			Sent: noon, From: floor, Until: until, Deadline: noon.Add(30 * time.Second), Within: 30 * time.Second, Stated: byWithin,
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.m.ScheduledEnqueueTime = tt.scheduled
			pr, ok, err := promiseOf(tt.m, Settings{}, tt.now)
			if err != nil || !ok {
				t.Fatalf("promiseOf = %v, %v, want a promise", ok, err)
			}
			tt.want.MessageID, tt.want.SessionID = "m1", "s1"
			if diff := cmp.Diff(tt.want, pr.ref); diff != "" {
				t.Errorf("reference (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDeadlinesThatMakeNoSenseAreRefused(t *testing.T) {
	for _, tt := range []struct {
		name      string
		property  string
		value     any
		scheduled time.Time
		now       scheduler.Instant
		want      string // in the sentence; "" = it is taken
	}{
		{"past", propDeadline, noon.Add(-time.Second), time.Time{}, measured(time.Millisecond), "has passed"},
		{"past within the uncertainty", propDeadline, noon.Add(-time.Second), time.Time{}, measured(time.Second), ""},
		{"past by minutes, clock unknown", propDeadline, noon.Add(-10 * time.Minute), time.Time{}, scheduler.Instant{Time: noon}, ""},
		{"past by hours, clock unknown", propDeadline, noon.Add(-2 * time.Hour), time.Time{}, scheduler.Instant{Time: noon}, "has passed"},
		{"not after the scheduled time", propDeadline, noon.Add(time.Minute), noon.Add(time.Minute), measured(0), "not after the scheduled"},
		{"further than a companion can say", propDeadline, noon.AddDate(101, 0, 0), time.Time{}, measured(0), "100 years"},
		{"further than a Duration holds", propDeadline, time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), time.Time{}, measured(0), "100 years"},
		{"the year 1", propDeadline, time.Time{}.Add(time.Second), time.Time{}, measured(0), "has passed"},
		{"no instant", propDeadline, "tomorrow", time.Time{}, measured(0), "overdue-deadline is \"tomorrow\""},
		{"a number", propDeadline, int32(5), time.Time{}, measured(0), "overdue-deadline is a value of type int32"},
		{"no zone", propDeadline, "2026-01-31T13:00:00", time.Time{}, measured(0), "overdue-deadline"},
		{"empty", propDeadline, "", time.Time{}, measured(0), "overdue-deadline"},
		{"expirytime is no instant", propExpiry, "soon", time.Time{}, measured(0), "ce-expirytime"},
		{"no unit", propWithin, "30", time.Time{}, measured(0), "overdue-within is \"30\""},
		{"no unit, a number", propWithin, int32(30), time.Time{}, measured(0), "with its unit"},
		{"negative", propWithin, "-30s", time.Time{}, measured(0), "more than 0"},
		{"zero", propWithin, "PT0S", time.Time{}, measured(0), "more than 0"},
		{"too long", propWithin, "P40000D", time.Time{}, measured(0), "overdue-within"},
		{"longer than a Duration holds", propWithin, "P99999999D", time.Time{}, measured(0), "overdue-within"},
		{"months", propWithin, "P1M", time.Time{}, measured(0), "overdue-within"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := with(tt.property, tt.value)
			m.ScheduledEnqueueTime = tt.scheduled
			_, ok, err := promiseOf(m, Settings{StampTTL: true}, tt.now)
			if tt.want == "" {
				if !ok || err != nil {
					t.Errorf("promiseOf = %v, %v, want a promise", ok, err)
				}
				return
			}
			if !errors.Is(err, errBadRequest) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("promiseOf = %v, want a bad request with %q", err, tt.want)
			}
			if m.Stamp != 0 {
				t.Errorf("a refused message has a TTL of %v stamped", m.Stamp)
			}
		})
	}
}

func TestALateAcknowledgementWidensTheWindow(t *testing.T) {
	for _, tt := range []struct {
		name     string
		m        *message
		after    time.Duration
		late     bool
		deadline time.Duration // from noon
	}{
		{"in time", with(propWithin, "30s"), time.Second, false, 0},
		{"late, relative", with(propWithin, "30s"), 5 * time.Second, true, 35 * time.Second},
		{"late, absolute", with(propDeadline, noon.Add(30*time.Second)), 5 * time.Second, true, 30 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pr, _, err := promiseOf(tt.m, Settings{}, measured(time.Millisecond))
			if err != nil {
				t.Fatal(err)
			}
			now := measured(2 * time.Millisecond)
			now.Time = noon.Add(tt.after)
			ref, late := pr.widened(now)
			if late != tt.late {
				t.Fatalf("late = %v, want %v", late, tt.late)
			}
			if !late {
				return
			}
			if want := now.Time.Add(now.Uncertainty); !ref.Until.Equal(want) {
				t.Errorf("until %v, want %v", ref.Until, want)
			}
			if !ref.From.Equal(pr.ref.From) {
				t.Errorf("from %v, want %v", ref.From, pr.ref.From)
			}
			if got := ref.Deadline.Sub(noon); got != tt.deadline {
				t.Errorf("deadline in %v, want %v", got, tt.deadline)
			}
		})
	}
	pr, _, err := promiseOf(with(propWithin, "30s"), Settings{}, scheduler.Instant{Time: noon})
	if err != nil {
		t.Fatal(err)
	}
	now := measured(0)
	now.Time = noon.Add(time.Hour)
	if _, late := pr.widened(now); late {
		t.Error("an open window was widened")
	}
}

func TestDeadlinesInTheTypesOfDotNETAreRead(t *testing.T) {
	at := time.Date(2033, 11, 6, 8, 49, 37, 100, time.UTC)
	for name, tc := range map[string]struct {
		property amqp.Pair
		at       time.Time
		within   time.Duration
	}{
		"DateTimeOffset": {property: amqp.Pair{Key: "overdue-deadline", Value: amqp.Described{
			Descriptor: amqp.TypeDateTimeOffset, Value: amqp.EpochTicks + at.Unix()*10_000_000 + 1,
		}}, at: at},
		"TimeSpan": {property: amqp.Pair{Key: "overdue-within", Value: amqp.Described{
			Descriptor: amqp.TypeTimeSpan, Value: int64(15_000_000),
		}}, within: 1500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			properties, err := amqp.AppendValue(nil, amqp.Map{tc.property})
			if err != nil {
				t.Fatal(err)
			}
			whole := amqp.Message{ApplicationProperties: properties, Body: amqp.AppendData(nil, []byte("hello"))}
			m, err := readMessage(whole.Append(nil))
			if err != nil {
				t.Fatal(err)
			}
			if at, within, err := scheduler.StatedDeadline(m.Property); err != nil || !at.Equal(tc.at) || within != tc.within {
				t.Errorf("StatedDeadline = %v, %v, %v, want %v, %v", at, within, err, tc.at, tc.within)
			}
		})
	}
}
