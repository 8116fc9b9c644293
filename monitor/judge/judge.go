// SPDX-License-Identifier: Apache-2.0

// Package judge says by when a message has to be received or completed, and whether it is overdue.
// It knows the stamps that the broker made, what the message states, and the settings of its
// entity.
package judge

import (
	"strings"
	"time"

	"overdue/internal/servicebus/duration"
	"overdue/internal/servicebus/link"
	"overdue/monitor/search"
	"overdue/scheduler"
)

// Settings is what an operator configures for an entity, and what is known of its default time to
// live. The zero value configures nothing.
type Settings struct {
	Strategy                 string          // "auto" or "", "native", "scan", "session"
	Deadline                 time.Duration   // of messages that state none; 0: none
	CompleteWithin           time.Duration   // of messages that do not state it; 0: none
	WarnBefore               []time.Duration // reminders, so long before a deadline
	DefaultMessageTimeToLive time.Duration   // of the entity; 0: unlimited or unknown
	// DefaultSince is when the settings of the entity last changed, by the clock of the broker.
	// Messages that were sent before may have another default. Zero: no change is known.
	DefaultSince time.Time
}

// longestLock is the longest lock duration that Service Bus allows.
const longestLock = 5 * time.Minute

// A Judgement says whether a message on the work queue is overdue, with the instants behind it.
type Judgement struct {
	Overdue    bool      // its deadline has passed
	Deadline   time.Time // by the clock of the broker; zero: none
	CompleteBy time.Time // when it must be completed; zero: never
	Native     bool      // it is overdue, and the broker does not deliver it any more
	Deferred   bool      // a consumer has deferred it: the broker does not expire it by itself
	Assumed    bool      // overdue only by an assumed deadline: the broker decides
	Otherwise  time.Time // if the broker leaves it: its next deadline; zero: none
}

// Message judges m, which r names, at the instant now of the clock of the broker. now
// MUST NOT be ahead of that clock.
func Message(r *scheduler.Reference, m *link.Message, s Settings, now time.Time) Judgement {
	if search.Pending(m) {
		// Its durations count from its activation, whose stamp does not exist yet.
		return Judgement{Deadline: duration.Later(now, m.ScheduledEnqueueTime).Add(search.WindowMargin)}
	}
	j := Judgement{CompleteBy: CompleteBy(r, m, s), Deferred: m.State == link.Deferred}
	certain, expiry, assumed := deadlinesOf(r, m, s)
	hasPassed := func(t time.Time) bool { return !t.IsZero() && !t.After(now) }
	if hasPassed(certain) {
		j.Overdue, j.Deadline, j.Native = true, certain, hasPassed(expiry)
		return j
	}
	next := certain
	for _, at := range assumed {
		switch {
		case hasPassed(at):
			j.Overdue, j.Assumed, j.Native = true, true, true
			j.Deadline = duration.Later(j.Deadline, at)
		case next.IsZero() || at.Before(next):
			next = at
		}
	}
	switch late := now.Sub(j.Deadline); {
	case !j.Overdue:
		j.Deadline = next
	case !next.IsZero():
		j.Otherwise = next
	case late < longestLock && !j.Deferred: // a consumer may hold it
		j.Otherwise = now.Add(max(late, time.Second))
	}
	return j
}

// deadlinesOf returns the deadline that m has for certain, the end of its time to live as far as
// that is certain, and the deadlines that it may have before. Those are assumed: they rest on a
// default time to live that m may not have. Only the broker knows, so nobody else dead-letters m
// for them.
func deadlinesOf(r *scheduler.Reference, m *link.Message, s Settings) (certain, expiry time.Time, assumed []time.Time) {
	older := mayPrecede(r, m, s)
	if older && s.DefaultMessageTimeToLive > 0 {
		assumed = append(assumed, m.EnqueuedTime.Add(s.DefaultMessageTimeToLive))
	}
	if older {
		s.DefaultMessageTimeToLive = 0
	}
	s.DefaultSince = time.Time{}
	ours := *r
	if r.Stated == "default" {
		ours = scheduler.Reference{} // it may be the default of another entity, or of another time
	}
	certain = DeadlineOf(&ours, m, s)
	if at, mortal := NativeExpiry(&ours, m, s); mortal {
		expiry = at
	}
	isAllThereIs := certain.IsZero() && r.Stated == "default"
	mayLimit := (older || isAllThereIs) && r.Stated != scheduler.StatedComplete
	if at := r.DeadlineAt(m.EnqueuedTime); mayLimit && !at.IsZero() {
		assumed = append(assumed, at)
	}
	return certain, expiry, assumed
}

// mayPrecede reports whether m may have been sent before the settings of its entity changed.
// Service Bus sets the time to live of a message when it is sent: the one that it states, capped by
// the default of the entity, or that default. A later change does not affect it
// (learn.microsoft.com/azure/service-bus-messaging/message-expiration, "Entity-level expiration").
// A peek shows no time to live that comes from the default alone.
func mayPrecede(r *scheduler.Reference, m *link.Message, s Settings) bool {
	sent := m.EnqueuedTime
	if activated := m.ScheduledEnqueueTime; !activated.IsZero() {
		// Its stamp is that of its activation. Only the reference of its own send knows when it was
		// sent: one whose window begins at the activation, or at the second of it where stamps are cut.
		isOfItsSend := r.From.Equal(activated.Truncate(search.StampPrecision)) || r.From.Equal(activated.Truncate(time.Second))
		if sent = r.Sent; !isOfItsSend || !sent.Before(activated) {
			return !s.DefaultSince.IsZero()
		}
	}
	return sent.Before(s.DefaultSince.Add(search.WindowMargin))
}

// DeadlineOf returns the deadline of m: the stated one, or the end of its time to live if that
// is earlier, since nobody can receive m after that. Zero: m has no deadline.
func DeadlineOf(r *scheduler.Reference, m *link.Message, s Settings) time.Time {
	at := statedBy(r, m, s)
	if expiry, mortal := NativeExpiry(r, m, s); mortal && expiry.Before(at) {
		return expiry
	}
	return at
}

// NativeExpiry returns when the broker stops delivering m, which r names, as far as it is known.
func NativeExpiry(r *scheduler.Reference, m *link.Message, s Settings) (at time.Time, mortal bool) {
	life := duration.Shorter(m.TimeToLive, s.DefaultMessageTimeToLive)
	if mayPrecede(r, m, s) {
		switch { // its companion states the life that it got
		case r.Within > 0 && (r.Stated == "ttl" || r.Stated == "default"):
			life = duration.Shorter(m.TimeToLive, r.Within)
		case m.TimeToLive > 0:
			life = m.TimeToLive
		}
	}
	return m.EnqueuedTime.Add(life), life > 0
}

// Agrees reports whether m has the deadline of r. If not, m may be another message with the
// same message-id.
func Agrees(r *scheduler.Reference, m *link.Message, s Settings) bool {
	if r.Stated == scheduler.StatedComplete {
		within := statedCompletion(m, s)
		how, _ := HowStated(m, Settings{})
		return within > 0 && (within-r.Within).Abs() <= time.Millisecond && how == "default"
	}
	// The proxy may have limited the deadline to the time to live that it knew. That of a
	// subscription may be shorter.
	at := r.DeadlineAt(m.EnqueuedTime)
	return !at.Before(DeadlineOf(r, m, s).Add(-time.Millisecond)) && !at.After(statedBy(r, m, s).Add(time.Millisecond))
}

// StatedDeadline returns the deadline that m states in a property, and how. A deadline that the
// proxy would refuse as invalid is none.
func StatedDeadline(m *link.Message) (how string, deadline time.Time) {
	at, within, err := scheduler.StatedDeadline(func(name string) any { return m.Properties[name] })
	switch {
	case err == nil && !at.IsZero():
		return "deadline", at
	case err == nil && within > 0:
		return "within", m.EnqueuedTime.Add(within)
	}
	return "", time.Time{}
}

// HowStated returns how m states its deadline, by the rules of the proxy, and the deadline.
func HowStated(m *link.Message, s Settings) (how string, deadline time.Time) {
	how, deadline = StatedDeadline(m)
	switch {
	case how != "":
		return how, deadline
	case m.TimeToLive > 0:
		return "ttl", m.EnqueuedTime.Add(m.TimeToLive)
	case s.Deadline > 0:
		return "entity", m.EnqueuedTime.Add(s.Deadline)
	}
	return "default", time.Time{}
}

// statedBy returns the deadline that m states. It does not rely on the reference: if a message-id
// repeats, that may stand for another message. Only a deadline that the entity gave it comes from
// the reference, since no message states it. Zero: m states none.
func statedBy(r *scheduler.Reference, m *link.Message, s Settings) time.Time {
	how, at := HowStated(m, s)
	expiry, mortal := NativeExpiry(r, m, s)
	switch {
	case how != "default":
		return at
	case mortal:
		return expiry
	case r.Stated == scheduler.StatedComplete:
		return time.Time{}
	}
	return r.DeadlineAt(m.EnqueuedTime)
}

// CompleteBy returns when m must be completed; zero: never. As with the deadline, the statement of
// the message comes first, then the entity, then the reference.
func CompleteBy(r *scheduler.Reference, m *link.Message, s Settings) time.Time {
	within := statedCompletion(m, s)
	switch {
	case within > 0:
		return m.EnqueuedTime.Add(within)
	case r.CompleteWithin > 0:
		return m.EnqueuedTime.Add(r.CompleteWithin)
	case r.Stated == scheduler.StatedComplete:
		return r.DeadlineAt(m.EnqueuedTime)
	}
	return time.Time{}
}

// statedCompletion returns within what time m must be completed, as it states, or its entity; 0:
// neither.
func statedCompletion(m *link.Message, s Settings) time.Duration {
	if within, err := scheduler.StatedCompletion(func(name string) any { return m.Properties[name] }); err == nil && within > 0 {
		return within
	}
	return s.CompleteWithin
}

// Missed describes m, whose deadline was missed or is notified of. Service Bus does not bound the
// correlation-id.
func Missed(m *link.Message, deadline time.Time) *scheduler.Missed {
	return &scheduler.Missed{
		SequenceNumber: m.SequenceNumber,
		EnqueuedTime:   m.EnqueuedTime,
		Deadline:       deadline,
		DeliveryCount:  m.DeliveryCount,
		CorrelationID:  strings.ToValidUTF8(m.CorrelationID[:min(len(m.CorrelationID), 512)], ""),
		Traceparent:    m.Traceparent(),
	}
}
