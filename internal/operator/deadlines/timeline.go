// SPDX-License-Identifier: Apache-2.0

package deadlines

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"overdue/alert"
	"overdue/internal/history"
	"overdue/internal/operator/dlq"
	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/link"
	"overdue/scheduler"
)

// Reasons of dead letters that were not dead-lettered before their deadline.
const (
	reasonExpired  = "TTLExpiredException" // given by the broker
	reasonExceeded = "DeadlineExceeded"    // given by a monitor that scanned
)

// addEnqueued adds what every message says of its beginning.
func (x *Explanation) addEnqueued(l *dlq.Letter, where string) {
	text := fmt.Sprintf("enqueued with sequence number %d", l.Number)
	if l.SessionID != nil {
		text += fmt.Sprintf(" in session %q", *l.SessionID)
	}
	if l.TimeToLive.Duration > 0 {
		text += ", time to live " + l.TimeToLive.String()
		x.timesToLive[l.TimeToLive.Duration] = struct{}{}
	} else {
		text += ", without a time to live of its own"
	}
	x.add(l.EnqueuedTime, whatEnqueued, where, "%s", text)
	x.addDeadline(l, where)
}

func (x *Explanation) addDeadline(l *dlq.Letter, where string) {
	if !l.Due.IsZero() {
		x.add(l.Due, whatDeadline, where, "its deadline, as the message states it")
	}
}

// addWaiting adds a message that is where it was sent.
func (x *Explanation) addWaiting(l *dlq.Letter) {
	x.counts.waiting++
	if !l.Due.IsZero() {
		x.counts.stated++
		if !l.Due.After(time.Now()) {
			x.counts.overdue++
		}
	}
	if l.State == link.Scheduled {
		x.counts.scheduled++
		text := "becomes active"
		if l.TimeToLive.Duration > 0 {
			text += ", and its time to live of " + l.TimeToLive.String() + " begins"
		}
		x.add(l.ScheduledTime, whatActivated, x.Entity, "%s", text)
		x.addDeadline(l, x.Entity)
		return
	}
	x.addEnqueued(l, x.Entity)
	text := "in the queue; a peek cannot tell whether a consumer has locked it"
	if l.State == link.Deferred {
		text = "in the queue, deferred"
	}
	if l.DeliveryCount > 0 {
		text += fmt.Sprintf("; delivery count %d", l.DeliveryCount)
	}
	x.add(time.Now(), whatSeen, x.Entity, "%s", text)
}

// addDeadLetter adds a message that is in the dead-letter queue.
func (x *Explanation) addDeadLetter(l *dlq.Letter) {
	x.counts.dead++
	where := x.place.Path()
	x.addEnqueued(l, where)
	reason := cmp.Or(l.Reason, "no reason given")
	if l.Description != "" {
		reason += ": " + l.Description
	}
	if d := x.missedBy(l); d != nil {
		x.add(d.DeadLetteredTime, whatDeadLettered, where, "dead-lettered %s after its deadline (%s), %s",
			d.Lag().Truncate(time.Millisecond), d.Strategy, reason)
		return
	}
	// Service Bus does not stamp when. It cannot have been earlier than this. A consumer may
	// dead-letter a message long before its deadline.
	at := l.EnqueuedTime
	if l.Due.After(at) && (l.Reason == reasonExpired || l.Reason == reasonExceeded) {
		at = l.Due
	}
	x.add(at, whatDeadLettered, where, "dead-lettered at this time or later, %s", reason)
}

// due adds when a companion is due.
func (x *Explanation) due(c *stored, text string) {
	x.add(c.due, whatCompanion, x.source.keeper(), "%s", text)
}

// addCompanion adds a companion with which the monitor has yet to finish.
func (x *Explanation) addCompanion(c *stored) {
	switch {
	case c.IsSlot():
		x.counts.slots++
		x.due(c, "the companion of its slot is due")
	case c.pending:
		x.counts.named++
		x.due(c, "its companion is due")
	default:
		x.counts.named++
		x.counts.unfinished++
		x.due(c, "its companion was due, and is not finished: a monitor has it, or no monitor is running")
	}
	x.addReferences(c, func(r *scheduler.Reference) {
		if x.counts.waiting+x.counts.dead == 0 {
			x.add(r.Deadline, whatDeadline, x.source.keeper(), "its deadline, as its companion states it (%s)", r.Stated)
		}
	})
}

// addFailedCompanion adds a companion that no monitor could finish with.
func (x *Explanation) addFailedCompanion(c *stored) {
	x.counts.failed++
	x.add(c.due, whatFailed, x.source.keeper(), "its companion failed: %s: %s", c.reason, c.description)
	x.addReferences(c, nil)
}

// addReferences adds what a companion says of the message itself, and calls also for each reference
// to it, if also is not nil.
func (x *Explanation) addReferences(c *stored, also func(*scheduler.Reference)) {
	where := x.source.keeper()
	for i := range c.References {
		r := &c.References[i]
		if !x.isReferredTo(*r) {
			continue
		}
		x.add(r.Sent, whatSent, where, "sent through Overdue, which wrote its companion")
		if also != nil {
			also(r)
		}
		if m := r.Missed; m != nil {
			x.add(m.DeadLetteredTime, whatMissed, where, "the monitor saw that it missed its deadline (%s, %s)", m.Strategy, m.DeadLetterReason)
			if len(m.TakenBy) > 0 {
				x.add(m.DeadLetteredTime, whatNotified, where, "sent to, or queued in a group for: %s", strings.Join(m.TakenBy, ", "))
			}
		}
	}
}

// fetchNotifications asks a running process for what it notified of the message. A monitor may run
// elsewhere, so no answer is no error.
func (x *Explanation) fetchNotifications(ctx context.Context, adminAddress string) {
	if adminAddress == "" {
		return
	}
	answer, err := history.FetchNotifications(ctx, adminAddress, x.MessageID)
	if err != nil {
		x.Note = fmt.Sprintf("Notifications are unknown: no monitor answers at listen.admin, %s.", adminAddress)
		return
	}
	x.gaps = answer.Gaps
	x.keepNotifications(answer.Found)
	if unknown, err := history.Fetch[history.Unknown](ctx, adminAddress, history.UnknownPath, "", time.Time{}); err == nil { // else it is older
		x.keepUnknown(unknown.Found)
	}
}

// noteGaps says what the history may lack if there is no trace of the message.
func (x *Explanation) noteGaps() {
	if len(x.gaps) == 0 || len(x.Timeline) > 0 {
		return
	}
	spans := make([]string, len(x.gaps))
	for i, g := range x.gaps {
		spans[i] = g.String()
	}
	x.Note = "If it missed its deadline, the history may lack that. The gaps (UTC): " + strings.Join(spans, "; ") + "."
}

// keepNotifications keeps those of the message-id that are of the entity as well.
func (x *Explanation) keepNotifications(all []history.Notification) {
	for _, n := range all {
		d := &n.Event.Data
		if strings.EqualFold(d.Entity, x.place.Entity) && strings.EqualFold(d.Subscription, x.place.Subscription) {
			x.notified = append(x.notified, n)
		}
	}
}

// keepUnknown keeps the verdicts about messages with the id, in the entity.
func (x *Explanation) keepUnknown(all []history.Unknown) {
	for _, u := range all {
		if strings.EqualFold(u.Entity, x.Entity) && address.Names(x.MessageID, u.MessageID, u.SequenceNumber) {
			x.unknown = append(x.unknown, u)
		}
	}
}

// addUnknown adds that nobody can tell what became of the message.
func (x *Explanation) addUnknown(u *history.Unknown) {
	const where = "the monitor"
	if x.counts.waiting+x.counts.dead == 0 {
		x.counts.unknown++
		x.add(u.Deadline, whatDeadline, where, "its deadline")
	}
	x.add(u.Judged, whatUnknown, where, "outcome not known: %s", u.Why)
}

// missedBy returns the event about the missed deadline of exactly that message, or nil.
func (x *Explanation) missedBy(l *dlq.Letter) *alert.EventData {
	for i := range x.notified {
		e := &x.notified[i].Event
		sameTime := e.Data.EnqueuedTime.Truncate(time.Millisecond).Equal(l.EnqueuedTime.Truncate(time.Millisecond))
		if e.Type == alert.TypeMissed && e.Data.SequenceNumber == l.Number && sameTime {
			return &e.Data
		}
	}
	return nil
}

// addNotification adds which sinks took an event, and which have not so far. If the message is gone
// by now, the event also has its history.
func (x *Explanation) addNotification(n *history.Notification) {
	const where = "the monitor"
	d := &n.Event.Data
	if n.Event.Type == alert.TypeMissed && x.counts.dead == 0 {
		x.counts.removed++
		x.add(d.EnqueuedTime, whatEnqueued, where, "enqueued with sequence number %d", d.SequenceNumber)
		x.add(d.Deadline, whatDeadline, where, "its deadline")
		x.add(d.DeadLetteredTime, whatDeadLettered, where, "dead-lettered %s after its deadline (%s), %s",
			d.Lag().Truncate(time.Millisecond), d.Strategy, d.DeadLetterReason)
	}
	if d.Muted {
		x.add(n.Event.Time, whatMuted, where, "%s %s sent to no sink, since %s was muted", n.Event.Type, n.Event.ID, d.Path())
	}
	for _, by := range n.TakenBy {
		x.add(by.Time, whatNotified, by.Sink, "%s %s sent to %s", n.Event.Type, n.Event.ID, by.Sink)
	}
	for _, by := range n.Waiting {
		text := fmt.Sprintf("%s %s queued for %s", n.Event.Type, n.Event.ID, by.Sink)
		if by.State == history.Failed {
			text += "; the latest attempt failed: " + by.Error
		}
		x.add(by.Time, whatQueued, by.Sink, "%s", text)
	}
}
