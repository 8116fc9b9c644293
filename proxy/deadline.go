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
	// maxDeadline is how far ahead a deadline may be. It is what a companion can say.
	maxDeadline = amqp.LongestLife

	// sendWindow is how long after the send the broker's stamp is expected. A send that
	// takes longer gets a second companion.
	sendWindow = 2 * time.Second
	// activationWindow is how late a scheduled message may be enqueued and still be found.
	activationWindow = 5 * time.Minute
	// unknownClock is how wrong our clock is taken to be, while it has not been compared
	// with the broker's, before a deadline is refused for being past.
	unknownClock = time.Hour
)

// How a deadline was stated, as the companion says it.
const (
	byDeadline = "deadline"
	byWithin   = "within"
	byTTL      = "ttl"
	byEntity   = "entity"
	byDefault  = "default"
)

// A promise is what the companion of one message will hold the monitor to.
type promise struct {
	ref       scheduler.Reference
	scheduled time.Time // of the message; zero = at once
	// findable: the broker expires the message itself at its deadline, so that it is found by that
	// and when it was enqueued.
	findable bool

	of      int           // place of the message in its send
	stamped time.Duration // what was to be stamped on it; there may have been no room
}

// A statement is a deadline as it was stated: absolute, or relative to the instant at
// which the broker enqueues the message.
type statement struct {
	at     time.Time
	within time.Duration
	by     string // "" = there is no deadline
}

// promiseOf works out the deadline of m and stamps its TTL. ok is false when m has none.
func promiseOf(m *message, s Settings, now scheduler.Instant) (pr promise, ok bool, err error) {
	// life is how long the broker keeps the message anyway; 0 = for ever.
	life := duration.Shorter(m.TTL, s.DefaultMessageTimeToLive)
	st, err := statedBy(m, s)
	if err != nil || st.by == "" {
		return promise{}, false, err
	}
	pr = promise{scheduled: m.ScheduledEnqueueTime, ref: scheduler.Reference{
		MessageID: m.ID, SessionID: m.SessionID, PartitionKey: m.PartitionKey,
		Sent: now.Time, Within: st.within, Stated: st.by,
	}}
	earliest, known := earliestEnqueue(m, now)
	if now.Measured {
		pr.ref.From, pr.ref.Until = earliest, now.Time.Add(now.Uncertainty+sendWindow+m.Delay)
		if m.ScheduledEnqueueTime.After(now.Time) {
			pr.ref.Until = duration.Later(pr.ref.Until, m.ScheduledEnqueueTime.Add(activationWindow+m.Delay))
		}
	}

	// ttl is what the message's TTL would have to be to end at the deadline.
	ttl := st.within
	if st.within > 0 {
		pr.ref.Deadline = duration.Later(now.Time, m.ScheduledEnqueueTime).Add(st.within)
		if pr.ref.Deadline.Sub(now.Time) > maxDeadline {
			return promise{}, false, nil // scheduled for never, as some say it; nothing can be late
		}
	} else {
		if err := plausible(st.at, m, now); err != nil {
			return promise{}, false, err
		}
		pr.ref.Deadline = st.at
		// Reckoned from the earliest stamp that the broker can make: whatever it makes of the
		// clocks, enqueued-time + TTL is not before the deadline. While the broker's clock is
		// unknown nothing bounds its stamp, and no TTL is safe.
		if ttl = 0; known {
			ttl = max(duration.RoundUp(st.at.Sub(earliest)), time.Millisecond)
		}
	}
	// Of a deadline that is the end of a TTL there is nothing to stamp: the one of a copy in a
	// subscription is not that of the others. What a header cannot hold, or only as a value that
	// stands for more as well, is kept with no TTL stamped.
	stamps := s.StampTTL && st.by != byTTL && st.by != byDefault && st.by != byComplete
	if stamps && ttl > 0 && ttl < amqp.MaxTTL && (life == 0 || ttl < life) {
		m.Stamp = ttl
	}
	pr.findable = pr.ref.Within > 0 && (!stamps || m.Stamp == ttl || life == ttl) && (st.by != byEntity || stamps) && (st.by != byWithin || stamps) && st.by != byComplete &&
		now.Measured && m.SessionID == "" && m.ScheduledEnqueueTime.IsZero() && m.Delay == 0
	if err := pr.second(m, s); err != nil {
		return promise{}, false, err
	}
	return pr, true, nil
}

// statedBy finds the statement that counts.
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
		// To pass it over would leave a message unwatched whose sender believes otherwise.
		return statement{}, rest.BadRequest("%s.", err)
	case !at.IsZero():
		return statement{at: at, by: byDeadline}, nil
	case within > 0:
		// Nobody can receive it after the end of its life.
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

// plausible refuses an absolute deadline that has passed for certain, or is absurd.
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

// earliestEnqueue is the earliest enqueued-time that the broker can stamp on m; known is
// false when there is no telling. The broker never enqueues before the scheduled time,
// so that is a bound even when its clock is unknown. Stamps are whole milliseconds, cut.
func earliestEnqueue(m *message, now scheduler.Instant) (t time.Time, known bool) {
	t = m.ScheduledEnqueueTime
	if now.Measured {
		t = duration.Later(t, now.Time.Add(-now.Uncertainty).Truncate(time.Millisecond))
	}
	return t, !t.IsZero()
}

// widened is the reference for the second companion of a message that may have been
// enqueued as late as now, after its window. ok is false when the window covers it.
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
