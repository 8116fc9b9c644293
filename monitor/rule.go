// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"slices"
	"strings"
	"time"

	"overdue/alert"
	"overdue/internal/servicebus/duration"
	"overdue/internal/servicebus/link"
	"overdue/monitor/intake"
	"overdue/monitor/judge"
	"overdue/monitor/notify"
	"overdue/monitor/search"
	"overdue/scheduler"
)

// A rule says for which messages a companion stands: for those with a message-id, for those of a
// window that have a deadline, or for those of a slot. Its messages are read once its companion is
// due, shortly before their deadlines.
type rule struct {
	timed
	companion *intake.Companion
	ref       scheduler.Reference
	slot      *scheduler.Companion // nil: it is over ref
	hops      int                  // how often its messages were forwarded, as far as they were followed

	reads   int               // while its window was open
	matched bool              // it has found a message
	noted   []search.Identity // of the messages of a reference
	letters bool              // dead letters were read, and had none of it
	far     time.Time         // by the clock of the broker: the first deadline that is not near; zero: none
}

// sendTime is how long after its companion a message may be enqueued, if the companion does not
// state a window. A send that takes longer gets a second companion.
const sendTime = 3 * time.Second

// rulesOf makes a rule of each reference of a companion, or one of its slot. It notifies of what a
// companion says of expired messages.
func (w *Worker) rulesOf(ctx context.Context, c *intake.Companion) (rules []*rule) {
	if c.Content.IsSlot() {
		c.Add(1)
		return []*rule{newRule(c, scheduler.Reference{}, &c.Content)}
	}
	c.Add(len(c.Content.References))
	for _, r := range c.Content.References {
		switch {
		case r.Missed != nil && r.Missed.Type == alert.TypeBlind && !notify.IsBlind(r.Missed.Notice):
			c.Refuse(ctx, intake.Malformed, "its notice is not the data of "+alert.TypeBlind)
			continue
		case r.Missed != nil:
			w.notify(ctx, c.Content.Entity, &r, r.Missed, []*intake.Companion{c})
			continue
		}
		for event := range strings.SplitSeq(r.Notified, ",") {
			w.notified.Note(event)
		}
		rules = append(rules, newRule(c, r, nil))
	}
	return rules
}

func newRule(c *intake.Companion, ref scheduler.Reference, slot *scheduler.Companion) *rule {
	return &rule{timed: timed{time.Now()}, companion: c, ref: ref, slot: slot}
}

// rearm has the companion of r become due again at an instant of the clock of the broker, or
// before.
func (r *rule) rearm(t time.Time) {
	if r.far.IsZero() || t.Before(r.far) {
		r.far = t
	}
}

// maxNoted bounds the messages that a companion says were notified of. One that it leaves out may
// be notified of twice.
const maxNoted = 16

// match records that a message is one of r.
func (r *rule) match(identity search.Identity) {
	r.matched = true
	if r.slot == nil && len(r.noted) < maxNoted && !slices.Contains(r.noted, identity) {
		r.noted = append(r.noted, identity)
	}
}

// again returns a companion that takes over from that of rl, but for messages that were notified
// of.
func (e *entity) again(rl *rule, due time.Time) *scheduler.Companion {
	var events []string
	for _, identity := range rl.noted {
		if id := eventID(e.name, identity); e.w.notified.IsFinal(id) {
			events = append(events, id)
		}
	}
	next := rl.againAt(e.name, due)
	if len(events) > 0 {
		next.References[0].Notified = strings.Join(events, ",")
	}
	return next
}

// againAt returns the companion of r for another entity, or another instant.
func (r *rule) againAt(entity string, due time.Time) *scheduler.Companion {
	if r.slot != nil {
		c := *r.slot
		c.Due = due
		return &c
	}
	return &scheduler.Companion{
		Entity:     entity,
		Due:        due,
		References: []scheduler.Reference{r.ref},
		Attempt:    r.companion.Content.Attempt,
	}
}

// open returns how long messages of r may still arrive on the work queue, at the instant now of
// the clock of the broker. Only after that their absence has a meaning.
func (r *rule) open(now time.Time) time.Duration {
	switch {
	case r.slot != nil:
		return 0
	case r.ref.Until.IsZero():
		return time.Until(r.companion.Since.Add(sendTime))
	}
	return r.ref.Until.Add(search.WindowMargin).Sub(now)
}

// window returns the enqueued-times of the messages of r, with a margin before and after.
func (r *rule) window(margin time.Duration) (from, until time.Time) {
	if r.ref.From.IsZero() {
		return time.Time{}, search.Forever
	}
	return r.ref.From.Add(-margin), r.ref.Until.Add(margin)
}

// earliest returns an instant that no deadline of r precedes; zero: unknown. A message that is gone
// by then was received in time.
func (r *rule) earliest(s *entitySettings) time.Time {
	if r.slot != nil {
		return r.slot.SlotStart()
	}
	if r.ref.From.IsZero() || r.ref.From.Before(s.DefaultSince) {
		return time.Time{} // it may have got another default
	}
	from := r.ref.From.Add(-search.StampPrecision)
	deadline := r.ref.DeadlineAt(from)
	if life := s.DefaultMessageTimeToLive; life > 0 {
		return duration.Earlier(deadline, from.Add(life))
	}
	return deadline
}

// due is about when the messages of r are due.
func (r *rule) due() time.Time {
	if r.slot != nil {
		return r.slot.SlotEnd
	}
	return r.ref.Deadline
}

// isByLife reports whether the deadline of the message that r names is the end of its time to live
// here, and it has no other notification. Its session would not be known from the backlog. A copy of
// a topic may live longer than its companion states.
func (r *rule) isByLife(s *entitySettings) bool {
	byTTL := r.ref.Stated == "ttl" && duration.Shorter(r.ref.Within, s.DefaultMessageTimeToLive) == r.ref.Within
	byDefault := r.ref.Stated == "default" && r.ref.Within == s.DefaultMessageTimeToLive
	otherwise := r.ref.CompleteWithin > 0 || s.CompleteWithin > 0 || len(s.WarnBefore) > 0
	hasName := !r.ref.WithoutID() && !s.sessions && !s.subscription
	return (byTTL || byDefault) && hasName && r.ref.Within > 0 && !r.ref.From.IsZero() && !otherwise
}

// fits reports whether m may be a message of r, which is over a reference, by its names and its
// stamp.
func (r *rule) fits(m *link.Message, s Settings) bool {
	from, until := r.window(search.WindowMargin)
	switch {
	case !r.mayBe(m.SequenceNumber) || m.EnqueuedTime.Before(from) || m.EnqueuedTime.After(until) || r.statesNoDeadline(m):
		return false
	case r.ref.WithoutID():
		return !search.Pending(m) && r.agrees(m, s)
	}
	return m.MessageID == r.ref.MessageID && m.SessionID == r.ref.SessionID
}

// mayBe reports whether r may stand for the message with a sequence number.
func (r *rule) mayBe(number int64) bool {
	return r.ref.SequenceNumber == 0 || r.ref.SequenceNumber == number
}

// agrees reports whether m has the deadline of r.
func (r *rule) agrees(m *link.Message, s Settings) bool {
	if judge.Agrees(&r.ref, m, s) {
		return true
	}
	switch r.ref.Stated {
	case "entity", "default":
		return m.TimeToLive == 0 && !search.StatesDeadline(m)
	}
	return false
}

// statesNoDeadline reports whether m is certainly another message with the same message-id: it
// waits and states no deadline, and the message of r does.
func (r *rule) statesNoDeadline(m *link.Message) bool {
	if m.DeadLetterReason != "" || m.TimeToLive > 0 || search.StatesDeadline(m) {
		return false
	}
	switch r.ref.Stated {
	case "deadline", "within", "ttl":
		return true
	}
	return false
}

// isNear reports whether an instant of the clock of the broker is so near that a companion is held
// until then. Where the clock of the worker is that far behind, since its companion was due long
// ago, the instant seems nearer than it is. A rewritten companion comes with a new stamp.
func isNear(clock *judge.Clock, t time.Time) bool {
	wait := clock.Until(t)
	isBehind := clock.Latest().Sub(t) > nearDeadline
	return wait <= 0 || wait <= nearDeadline && !isBehind
}
