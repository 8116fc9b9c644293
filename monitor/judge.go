// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"time"

	"overdue/internal/servicebus/duration"
	"overdue/internal/servicebus/link"
	"overdue/monitor/search"
	"overdue/scheduler"
)

// verdict is the result of a check.
type verdict int

const (
	notDue   verdict = iota // its deadline, or a reminder, is still to come
	gone                    // it is not on the work queue any more
	inFlight                // it is overdue, and a consumer probably holds it
	expiring                // it is overdue, and its time to live ends within a moment
	overdue                 // its deadline has passed
)

// judgement is a verdict, with the instants behind it.
type judgement struct {
	verdict    verdict
	deadline   time.Time // by the clock of the broker; zero: none
	completeBy time.Time // when it must be completed; zero: never
	expiry     time.Time // when the broker stops delivering it; zero: never
	native     bool      // that has passed
	deferred   bool      // a consumer has deferred it: the broker does not expire it by itself
}

// judge returns the verdict on m, which r names, at the instant now of the clock of the broker. now
// MUST NOT be ahead of that clock.
func judge(r *scheduler.Reference, m *link.Message, s Settings, now time.Time) judgement {
	deadline := deadlineOf(r, m, s)
	by := completeBy(r, m, s)
	expiry, mortal := nativeExpiry(r, m, s)
	switch {
	case search.Pending(m):
		// Its durations count from its activation, whose stamp does not exist yet.
		start := now
		if m.ScheduledEnqueueTime.After(now) {
			start = m.ScheduledEnqueueTime
		}
		return judgement{verdict: notDue, deadline: start.Add(max(firstReminder(r, s), checkAgainMin))}
	case deadline.IsZero() || deadline.After(now):
		return judgement{verdict: notDue, deadline: deadline, completeBy: by}
	}
	j := judgement{verdict: overdue, deadline: deadline, completeBy: by, deferred: m.State == link.Deferred}
	if mortal {
		j.expiry, j.native = expiry, !expiry.After(now)
	}
	return j
}

// deadlineOf returns the deadline of m: the stated one, or the end of its time to live if that
// is earlier, since nobody can receive m after that. Zero: m has no deadline.
func deadlineOf(r *scheduler.Reference, m *link.Message, s Settings) time.Time {
	at := statedBy(r, m, s)
	if expiry, mortal := nativeExpiry(r, m, s); mortal && expiry.Before(at) {
		return expiry
	}
	return at
}

// statedBy returns the deadline that m states, by the rules of the proxy. It does not rely on
// the reference: if a message-id repeats, that may stand for another message. Only a deadline
// that the entity gave it comes from the reference, since no message states it. Zero: m states
// none.
func statedBy(r *scheduler.Reference, m *link.Message, s Settings) time.Time {
	enqueued := m.EnqueuedTime
	at, within, err := scheduler.StatedDeadline(func(name string) any { return m.Properties[name] })
	if err == nil && !at.IsZero() {
		return at
	}
	if err == nil && within > 0 {
		return enqueued.Add(within)
	}
	expiry, mortal := nativeExpiry(r, m, s)
	switch {
	case m.TimeToLive > 0:
		return expiry
	case s.Deadline > 0:
		return enqueued.Add(s.Deadline)
	case mortal:
		return expiry
	}
	if r.Stated == scheduler.StatedComplete {
		return time.Time{}
	}
	return r.DeadlineAt(enqueued)
}

// agrees reports whether m has the deadline of r. If not, m may be another message with the
// same message-id.
func agrees(r *scheduler.Reference, m *link.Message, s Settings) bool {
	if r.Stated == scheduler.StatedComplete {
		return completeBy(r, m, s).Sub(r.DeadlineAt(m.EnqueuedTime)).Abs() <= time.Millisecond
	}
	// The proxy may have limited the deadline to the time to live that it knew.
	at := r.DeadlineAt(m.EnqueuedTime)
	return statedBy(r, m, s).Sub(at).Abs() <= time.Millisecond || deadlineOf(r, m, s).Sub(at).Abs() <= time.Millisecond
}

// nativeExpiry returns when the broker stops delivering m, which r names.
func nativeExpiry(r *scheduler.Reference, m *link.Message, s Settings) (time.Time, bool) {
	life := lifeOf(r, m, s)
	return m.EnqueuedTime.Add(life), life > 0
}

// lifeOf returns the time to live of m, which r names; 0: none.
//
// Service Bus sets it when it enqueues a message: the time to live that the message states,
// capped by the default of the entity, or that default
// (learn.microsoft.com/azure/service-bus-messaging/message-expiration, "Entity-level
// expiration"). A later change of the default does not affect the message. A peek shows what
// the message states, but no time to live that comes from the default alone. So a message that
// was enqueued under another default has the time to live that it states, or the one that its
// companion states.
func lifeOf(r *scheduler.Reference, m *link.Message, s Settings) time.Duration {
	if m.EnqueuedTime.Before(s.defaultSince) {
		switch {
		case m.TimeToLive > 0:
			return m.TimeToLive
		case r.Stated == "default" && r.Within > 0 && s.defaultStated:
			return r.Within
		}
	}
	return duration.Shorter(m.TimeToLive, s.DefaultMessageTimeToLive)
}
