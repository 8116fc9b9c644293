// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"time"

	"overdue/internal/amqp"
	"overdue/internal/servicebus/duration"
	"overdue/internal/servicebus/rest"
	"overdue/scheduler"
)

const (
	// maxDeadline bounds how far ahead a deadline may be. A companion cannot state a longer one.
	maxDeadline = amqp.LongestLife

	// sendWindow is how long after the send the broker may stamp the message. A slower send gets
	// a second companion.
	sendWindow = 2 * time.Second
	// activationWindow is how late the broker may enqueue a scheduled message so that the monitor
	// still finds it.
	activationWindow = 5 * time.Minute
	// unknownClock is the assumed error of our clock before it has been compared with the
	// broker's. A deadline is refused as past only beyond this margin.
	unknownClock = time.Hour
)

// Sources of a deadline, as the companion spells them.
const (
	byDeadline = "deadline"
	byWithin   = "within"
	byTTL      = "ttl"
	byEntity   = "entity"
	byDefault  = "default"
)

// A promise is the reference to one message in its companion, and the data needed to build it.
type promise struct {
	ref       scheduler.Reference
	scheduled time.Time // of the message; zero = at once
	// findable: the broker expires the message itself at its deadline, so the monitor can find it
	// by its deadline and enqueued-time alone.
	findable bool

	of int // index of the message in its send
}

// A statement is a deadline as stated: absolute, or relative to the instant at which the broker
// enqueues the message.
type statement struct {
	at     time.Time
	within time.Duration
	by     string // "" = there is no deadline
}

// promiseOf computes the deadline of m and stamps its TTL. ok is false when m has no deadline.
func promiseOf(m *message, s Settings, now scheduler.Instant) (pr promise, ok bool, err error) {
	// life is how long the broker keeps the message if nothing is stamped; 0 = for ever.
	life := duration.Shorter(m.TTL, s.DefaultMessageTimeToLive)
	st, err := statedBy(m, s)
	if err != nil || st.by == "" {
		return promise{}, false, err
	}
	start := duration.Later(now.Time, m.ScheduledEnqueueTime)
	if !st.at.IsZero() {
		if err := plausible(st.at, m, now); err != nil {
			return promise{}, false, err
		}
		if m.TTL > 0 && life < st.at.Sub(start) { // nobody can receive it after that
			st = statement{within: duration.RoundUp(life), by: byTTL}
		}
	}
	pr = promise{scheduled: m.ScheduledEnqueueTime, ref: scheduler.Reference{
		MessageID: m.ID, SessionID: m.SessionID,
		Sent: now.Time, Within: st.within, Stated: st.by,
	}}
	earliest, known := earliestEnqueue(m, now)
	if now.Measured {
		pr.ref.From, pr.ref.Until = earliest, now.Time.Add(now.Uncertainty+sendWindow+m.Delay)
		if m.ScheduledEnqueueTime.After(now.Time) {
			pr.ref.Until = duration.Later(pr.ref.Until, m.ScheduledEnqueueTime.Add(activationWindow+m.Delay))
		}
	}

	// ttl is the TTL that ends at the deadline.
	ttl := st.within
	if st.within > 0 {
		pr.ref.Deadline = start.Add(st.within)
		if pr.ref.Deadline.Sub(now.Time) > maxDeadline {
			return promise{}, false, nil // "never", in effect; it cannot be missed
		}
	} else {
		pr.ref.Deadline = st.at
		// Count from the earliest stamp that the broker can make, so that enqueued-time + TTL is
		// never before the deadline, however far the clocks differ. While the broker's clock is
		// unknown nothing bounds its stamp, and no TTL is safe.
		if ttl = 0; known {
			ttl = max(duration.RoundUp(st.at.Sub(earliest)), time.Millisecond)
		}
	}
	brokerExpires := m.stamp(ttl, life, st.by, s)
	enqueuedAtOnce := m.ScheduledEnqueueTime.IsZero() && m.Delay == 0
	pr.findable = pr.ref.Within > 0 && brokerExpires && enqueuedAtOnce && now.Measured && m.SessionID == ""
	if err := pr.second(m, s); err != nil {
		return promise{}, false, err
	}
	return pr, true, nil
}

// stamp stamps a TTL on m that ends at its deadline. It reports whether the broker expires m then.
//
// A deadline that is the end of a TTL needs no stamp; a TTL for one subscription would shorten the
// copies in the others. If the header cannot hold the TTL, or holds it as a value with another
// meaning, the deadline is kept without a stamp.
func (m *message) stamp(ttl, life time.Duration, by string, s Settings) (brokerExpires bool) {
	switch {
	case by == byTTL || by == byDefault:
		return true
	case by == byComplete || !s.StampTTL:
		return false
	}
	if ttl > 0 && ttl < amqp.MaxTTL && (life == 0 || ttl < life) {
		m.Stamp = ttl
	}
	return m.Stamp == ttl || life == ttl
}

// statedBy returns the statement that takes precedence.
func statedBy(m *message, s Settings) (statement, error) {
	byEntities := duration.Shorter(s.DefaultMessageTimeToLive, s.SubscriptionTimeToLive)
	var at time.Time
	var within time.Duration
	var err error
	if m.Property != nil {
		at, within, err = scheduler.StatedDeadline(m.Property)
	}
	switch {
	case err != nil:
		// Ignoring it would leave the message unwatched while its sender believes otherwise.
		return statement{}, rest.BadRequest("%s.", err)
	case !at.IsZero():
		return statement{at: at, by: byDeadline}, nil
	case within > 0:
		// No consumer can receive it after its TTL.
		return statement{within: duration.RoundUp(duration.Shorter(within, duration.Shorter(m.TTL, s.DefaultMessageTimeToLive))), by: byWithin}, nil
	case m.TTL > 0:
		return statement{within: duration.RoundUp(duration.Shorter(m.TTL, byEntities)), by: byTTL}, nil
	case s.Deadline > 0:
		return statement{within: duration.RoundUp(min(s.Deadline, maxDeadline)), by: byEntity}, nil
	case byEntities > 0 && byEntities < maxDeadline:
		return statement{within: duration.RoundUp(byEntities), by: byDefault}, nil
	}
	if within, _, err = completion(m, s); err != nil || within == 0 {
		return statement{}, err
	}
	return statement{within: within, by: byComplete}, nil
}

// plausible refuses an absolute deadline that has certainly passed, or is absurd.
func plausible(at time.Time, m *message, now scheduler.Instant) error {
	doubt := now.Uncertainty
	if !now.Measured {
		doubt = unknownClock
	}
	switch {
	case at.Before(now.Time.Add(-doubt)):
		return rest.BadRequest("The deadline %s has passed.", at.Format(time.RFC3339Nano))
	case !at.After(m.ScheduledEnqueueTime):
		return rest.BadRequest("The deadline %s is not after the scheduled enqueue time %s.",
			at.Format(time.RFC3339Nano), m.ScheduledEnqueueTime.Format(time.RFC3339Nano))
	case at.Sub(now.Time) > maxDeadline:
		return rest.BadRequest("The deadline %s is more than 100 years ahead.", at.Format(time.RFC3339Nano))
	}
	return nil
}

// earliestEnqueue returns the earliest enqueued-time that the broker can stamp on m; known is
// false when nothing bounds it. The broker never enqueues before the scheduled time, so that is a
// bound even when its clock is unknown.
func earliestEnqueue(m *message, now scheduler.Instant) (t time.Time, known bool) {
	t = m.ScheduledEnqueueTime
	if now.Measured {
		t = duration.Later(now.Cut(t), now.StampedSince())
	}
	return t, !t.IsZero()
}

// widened returns the reference for the second companion of a message that the broker may have
// enqueued as late as now, after its window. ok is false when the window covers now.
func (pr *promise) widened(now scheduler.Instant) (ref scheduler.Reference, ok bool) {
	latest := now.Time.Add(now.Uncertainty)
	if pr.ref.Until.IsZero() || !latest.After(pr.ref.Until) {
		return ref, false
	}
	ref = pr.ref
	ref.Until = latest
	if ref.Within > 0 {
		ref.Deadline = duration.Later(now.Time, pr.scheduled).Add(ref.Within)
	}
	return ref, true
}
