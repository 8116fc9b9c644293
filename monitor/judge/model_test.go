// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"testing"
	"time"

	"overdue/internal/servicebus/duration"
	"overdue/internal/servicebus/link"
	"overdue/scheduler"

	"pgregory.net/rapid"
)

// sentMessage is a message of an entity whose default time to live has changed once.
type sentMessage struct {
	message  *link.Message
	settings Settings // as they are now
	own      scheduler.Reference
	deadline time.Time // as the broker and the message have it; zero: none
}

func drawMessage(t *rapid.T) sentMessage {
	lives := rapid.SampledFrom([]time.Duration{0, time.Second, 2 * time.Second, 5 * time.Second, 20 * time.Second})
	sent := noon.Add(time.Duration(rapid.IntRange(0, 20_000).Draw(t, "sent")) * time.Millisecond)
	former, changed := lives.Draw(t, "former default"), noon.Add(10*time.Second)
	s := Settings{DefaultMessageTimeToLive: lives.Draw(t, "default"), DefaultSince: changed}
	m := &link.Message{MessageID: "m", EnqueuedTime: sent, TimeToLive: lives.Draw(t, "ttl")}
	if rapid.Bool().Draw(t, "scheduled") {
		m.EnqueuedTime = sent.Add(time.Duration(rapid.IntRange(1, 20_000).Draw(t, "delay")) * time.Millisecond)
		m.ScheduledEnqueueTime = m.EnqueuedTime
	}
	within := lives.Draw(t, "within")
	if within > 0 {
		m.Properties = map[string]any{"overdue-within": within.String()}
	}
	byDefault := s.DefaultMessageTimeToLive
	if sent.Before(changed) {
		byDefault = former
	}
	how, _ := HowStated(m, Settings{})
	life := duration.Shorter(duration.Shorter(m.TimeToLive, byDefault), within)
	r := scheduler.Reference{
		MessageID: "m",
		Sent:      sent,
		From:      m.EnqueuedTime,
		Until:     m.EnqueuedTime.Add(time.Second),
		Within:    life,
		Stated:    how,
	}
	all := sentMessage{message: m, settings: s, own: r}
	if life > 0 {
		all.deadline = m.EnqueuedTime.Add(life)
	}
	return all
}

// No message is expired by hand before its deadline, whatever its companion says, when it was sent
// and how the default of its entity has changed.
func TestNothingIsOverdueForCertainBeforeItsDeadline(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sent := drawMessage(t)
		r := sent.own
		switch rapid.IntRange(0, 3).Draw(t, "reference") {
		case 1: // derived from the message, as for senders that do not pass through Overdue
			r = scheduler.Reference{MessageID: "m", Sent: sent.message.EnqueuedTime, From: sent.message.EnqueuedTime, Until: sent.message.EnqueuedTime}
			r.Deadline = DeadlineOf(&r, sent.message, sent.settings)
			r.Stated, _ = HowStated(sent.message, sent.settings)
			if !r.Deadline.IsZero() {
				r.Within = r.Deadline.Sub(sent.message.EnqueuedTime)
			}
		case 2: // of another send with the same id, which had a default
			r.Stated, r.Within = "default", time.Second
		case 3: // without a window, by the clock of the sender
			r.From, r.Until, r.Sent = time.Time{}, time.Time{}, r.Sent.Add(time.Hour)
		}
		now := noon.Add(time.Duration(rapid.IntRange(0, 60_000).Draw(t, "now")) * time.Millisecond)
		j := Message(&r, sent.message, sent.settings, now)
		if early := sent.deadline.IsZero() || now.Before(sent.deadline); early && j.Overdue && !j.Assumed {
			t.Fatalf("%v after noon: %+v, want no certain deadline before %v", now.Sub(noon), j, sent.deadline)
		}
	})
}

// A monitor judges a message at each instant that the last judgement names, and has the broker
// expire an overdue one. So it does at the deadline, also where the default of the entity has
// changed.
func TestEveryDeadlineIsJudgedAtItsInstant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sent := drawMessage(t)
		if sent.deadline.IsZero() {
			return
		}
		for now := sent.message.EnqueuedTime; !now.After(sent.deadline); {
			j := Message(&sent.own, sent.message, sent.settings, now)
			if j.Overdue && now.Equal(sent.deadline) {
				return
			}
			if now = j.Deadline; j.Overdue {
				now = j.Otherwise
			}
			if now.IsZero() {
				break
			}
		}
		t.Fatalf("not judged at %v, which is %v after its stamp", sent.deadline, sent.deadline.Sub(sent.message.EnqueuedTime))
	})
}
