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

	// Messages that were enqueued before DefaultSince, by the clock of the broker, may have had
	// another default time to live. Zero: no change is known.
	DefaultSince time.Time
	// DefaultStated: companions state the default of this entity, not that of a topic for all of
	// its subscriptions.
	DefaultStated bool
}

// pendingDelay is the least delay of the first check of a message that is still scheduled.
const pendingDelay = 200 * time.Millisecond

// A Judgement says whether a message on the work queue is overdue, with the instants behind it.
type Judgement struct {
	Overdue    bool      // its deadline has passed
	Deadline   time.Time // by the clock of the broker; zero: none
	CompleteBy time.Time // when it must be completed; zero: never
	Expiry     time.Time // of an overdue message: when the broker stops delivering it; zero: never
	Native     bool      // that has passed
	Deferred   bool      // a consumer has deferred it: the broker does not expire it by itself
	Assumed    bool      // overdue only by a default that may be newer than m: the broker decides
	Otherwise  time.Time // its deadline if that does not hold for it; zero: none
}

// Message judges m, which r names, at the instant now of the clock of the broker. now
// MUST NOT be ahead of that clock.
func Message(r *scheduler.Reference, m *link.Message, s Settings, now time.Time) Judgement {
	deadline := DeadlineOf(r, m, s)
	by := CompleteBy(r, m, s)
	expiry, mortal := NativeExpiry(r, m, s)
	switch {
	case search.Pending(m):
		// Its durations count from its activation, whose stamp does not exist yet.
		start := now
		if m.ScheduledEnqueueTime.After(now) {
			start = m.ScheduledEnqueueTime
		}
		return Judgement{Deadline: start.Add(max(firstReminder(r, s), pendingDelay))}
	case deadline.IsZero() || deadline.After(now):
		switch at := formerExpiry(r, m, s); {
		case at.IsZero() || !deadline.IsZero() && !at.Before(deadline):
			return Judgement{Deadline: deadline, CompleteBy: by}
		case at.After(now):
			return Judgement{Deadline: at, CompleteBy: by}
		default:
			return Judgement{
				Overdue: true, Deadline: at, CompleteBy: by, Expiry: at, Native: true, Deferred: m.State == link.Deferred,
				Assumed: true, Otherwise: deadline,
			}
		}
	}
	j := Judgement{Overdue: true, Deadline: deadline, CompleteBy: by, Deferred: m.State == link.Deferred}
	if mortal {
		j.Expiry, j.Native = expiry, !expiry.After(now)
	}
	onlyByReference := !mortal && r.Stated == "default" && s.Deadline == 0 && !statesDeadline(m)
	if onlyByReference || assumesDefault(r, m, s) {
		s.DefaultMessageTimeToLive = 0
		j.Otherwise = DeadlineOf(r, m, s)
		j.Assumed = j.Otherwise.IsZero() || j.Otherwise.After(now)
		// Its stamp may show that it was sent after the default of r was removed.
		removed := onlyByReference && !s.DefaultSince.IsZero() && !m.EnqueuedTime.Before(s.DefaultSince)
		if r.Stated == "default" && (removed || !statesDefault(r, m, s)) {
			// r may be of another message, which has another default. Or a consumer holds this one.
			switch late := now.Sub(j.Otherwise); {
			case j.Assumed:
			case late < LongestLock:
				j.Otherwise = now.Add(time.Second)
			default:
				j.Otherwise = time.Time{}
			}
			j.Assumed = true
		}
	}
	return j
}

// LongestLock is the longest lock duration that Service Bus allows.
const LongestLock = 5 * time.Minute

// defaultMargin is by how much the clock that says when settings changed may be ahead of the one
// that stamps messages.
const defaultMargin = 100 * time.Millisecond

// localMargin is the same where a reference states the time of the send by the clock of the sender.
const localMargin = time.Hour

// assumesDefault reports whether the time to live of m comes from a default that may be newer than
// m. Then it may be longer than that, and m must not be dead-lettered because of it.
func assumesDefault(r *scheduler.Reference, m *link.Message, s Settings) bool {
	at, life, margin := sentAt(r, m), s.DefaultMessageTimeToLive, defaultMargin
	if !m.ScheduledEnqueueTime.IsZero() && !ScheduledBy(r, m) {
		at, margin = r.Sent, localMargin
	}
	switch {
	case life == 0 || m.TimeToLive > 0 && m.TimeToLive <= life || !at.Before(s.DefaultSince.Add(margin)):
		return false
	case margin == localMargin:
		return true
	case at.Before(s.DefaultSince):
		return m.TimeToLive == 0 && !statesDefault(r, m, s)
	}
	return !statesDefault(r, m, s) || r.Within > life
}

// sentAt returns when m was sent, by the clock of the broker. A scheduled message is enqueued at its
// activation, and its time to live is set before. Only its own reference knows when.
func sentAt(r *scheduler.Reference, m *link.Message) time.Time {
	if ScheduledBy(r, m) && r.Sent.Before(m.EnqueuedTime) {
		return r.Sent
	}
	return m.EnqueuedTime
}

// ScheduledBy reports whether r may be of the send that scheduled m: its window begins at the
// activation, or at the second of it where stamps are cut to seconds.
func ScheduledBy(r *scheduler.Reference, m *link.Message) bool {
	at := m.ScheduledEnqueueTime
	return !at.IsZero() && r.Sent.Before(at) && (r.From.Equal(at.Truncate(search.StampPrecision)) || r.From.Equal(at.Truncate(time.Second)))
}

// statesDefault reports whether r states the default of the entity at the time of the send of m. One
// without a window may be of another message with the same id.
func statesDefault(r *scheduler.Reference, m *link.Message, s Settings) bool {
	return r.Stated == "default" && r.Within > 0 && s.DefaultStated && !r.From.IsZero() &&
		!m.EnqueuedTime.Before(r.From.Add(-search.StampPrecision)) && !m.EnqueuedTime.After(r.Until.Add(search.StampPrecision))
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
	expiry, mortal := NativeExpiry(r, m, s)
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

// Agrees reports whether m has the deadline of r. If not, m may be another message with the
// same message-id.
func Agrees(r *scheduler.Reference, m *link.Message, s Settings) bool {
	if r.Stated == scheduler.StatedComplete {
		within := statedCompletion(m, s)
		return within > 0 && (within-r.Within).Abs() <= time.Millisecond && !statesDeadline(m)
	}
	// The proxy may have limited the deadline to the time to live that it knew. That of a
	// subscription may be shorter.
	at := r.DeadlineAt(m.EnqueuedTime)
	return !at.Before(DeadlineOf(r, m, s).Add(-time.Millisecond)) && !at.After(statedBy(r, m, s).Add(time.Millisecond))
}

// NativeExpiry returns when the broker stops delivering m, which r names.
func NativeExpiry(r *scheduler.Reference, m *link.Message, s Settings) (time.Time, bool) {
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
// companion states. Where neither does, today's default is an assumption, see assumesDefault.
func lifeOf(r *scheduler.Reference, m *link.Message, s Settings) time.Duration {
	if sentAt(r, m).Before(s.DefaultSince) {
		switch {
		case m.TimeToLive > 0:
			return m.TimeToLive
		case statesDefault(r, m, s):
			return r.Within
		}
	}
	return duration.Shorter(m.TimeToLive, s.DefaultMessageTimeToLive)
}

// formerExpiry returns when m expires if the default at the time of its send, which is not in force
// any more, was shorter than what m states: r, which the sender limited, shows that. Zero: it does
// not. But r may be of another message with the same id.
func formerExpiry(r *scheduler.Reference, m *link.Message, s Settings) time.Time {
	if !s.DefaultStated || r.Within == 0 || r.From.IsZero() || !sentAt(r, m).Before(s.DefaultSince.Add(defaultMargin)) {
		return time.Time{}
	}
	stated := m.TimeToLive
	if r.Stated == "within" {
		_, stated, _ = scheduler.StatedDeadline(func(name string) any { return m.Properties[name] })
	} else if r.Stated != "ttl" {
		return time.Time{}
	}
	if stated-r.Within <= time.Millisecond {
		return time.Time{}
	}
	return m.EnqueuedTime.Add(r.Within)
}

// CompleteBy returns when m must be completed; zero: never. As with the deadline, the statement of
// the message comes first, then the entity, then the reference.
func CompleteBy(r *scheduler.Reference, m *link.Message, s Settings) time.Time {
	within := statedCompletion(m, s)
	switch {
	case within > 0:
	case r.CompleteWithin > 0:
		within = r.CompleteWithin
	case r.Stated == scheduler.StatedComplete:
		return r.DeadlineAt(m.EnqueuedTime)
	default:
		return time.Time{}
	}
	return m.EnqueuedTime.Add(within)
}

// statedCompletion returns within what time m must be completed, as it states, or its entity; 0:
// neither.
func statedCompletion(m *link.Message, s Settings) time.Duration {
	if within, err := scheduler.StatedCompletion(func(name string) any { return m.Properties[name] }); err == nil && within > 0 {
		return within
	}
	return s.CompleteWithin
}

// statesDeadline reports whether m states by when it has to be received.
func statesDeadline(m *link.Message) bool {
	at, within, err := scheduler.StatedDeadline(func(name string) any { return m.Properties[name] })
	return m.TimeToLive > 0 || err == nil && (within > 0 || !at.IsZero())
}

// StatesOther reports whether m is not the message of r, since it states another deadline. Its time
// to live may have been capped on the way, by shortest.
func StatesOther(r *scheduler.Reference, m *link.Message, shortest time.Duration) bool {
	at, within, _ := scheduler.StatedDeadline(func(name string) any { return m.Properties[name] }) // an invalid one counts as none
	ours := func(d time.Duration) bool { return (d - r.Within).Abs() <= time.Millisecond }
	switch r.Stated {
	case "deadline":
		return at.Sub(r.Deadline).Abs() > time.Millisecond
	case "within":
		return !at.IsZero() || !ours(within) && !ours(m.TimeToLive)
	case "ttl":
		return search.StatesDeadline(m) || !ours(m.TimeToLive) && !ours(duration.Shorter(m.TimeToLive, shortest))
	case "default":
		return search.StatesDeadline(m) || m.TimeToLive > 0
	}
	return false
}

// firstReminder is how long after its activation a scheduled message has its first check.
func firstReminder(r *scheduler.Reference, s Settings) time.Duration {
	switch {
	case len(s.WarnBefore) > 0:
		return 0 // its stamp shows the activation
	case r.CompleteWithin > 0:
		return min(r.Within, r.CompleteWithin)
	}
	return r.Within
}

// maxCorrelationID bounds the bytes of a correlation-id in companions and events. Service Bus
// does not bound it.
const maxCorrelationID = 512

// Missed describes m, whose deadline was missed or is notified of.
func Missed(m *link.Message, deadline time.Time) *scheduler.Missed {
	return &scheduler.Missed{
		SequenceNumber: m.SequenceNumber, EnqueuedTime: m.EnqueuedTime, Deadline: deadline, DeliveryCount: m.DeliveryCount,
		CorrelationID: strings.ToValidUTF8(m.CorrelationID[:min(len(m.CorrelationID), maxCorrelationID)], ""), Traceparent: m.Traceparent(),
	}
}

// HowStated returns how the deadline of m was stated, in the order of DeadlineOf.
func HowStated(m *link.Message, s Settings) string {
	at, within, err := scheduler.StatedDeadline(func(name string) any { return m.Properties[name] })
	switch {
	case err == nil && !at.IsZero():
		return "deadline"
	case err == nil && within > 0:
		return "within"
	case m.TimeToLive > 0:
		return "ttl"
	case s.Deadline > 0:
		return "entity"
	}
	return "default"
}
