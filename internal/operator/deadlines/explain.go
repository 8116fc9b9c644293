// SPDX-License-Identifier: Apache-2.0

package deadlines

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"overdue/internal/escape"
	"overdue/internal/history"
	"overdue/internal/operator/dlq"
	"overdue/internal/servicebus/address"
	"overdue/internal/terminal"
	"overdue/scheduler"
)

// ExplainOptions say which message to explain. Place is required, and a MessageID or a Number.
type ExplainOptions struct {
	Place     dlq.Place
	MessageID string // or # and the sequence number
	Number    int64  // the sequence number
	// AdminAddress is host:port of an admin port on this machine, that of the monitor if there is
	// one; "" if no port is known. What was notified is asked there.
	AdminAddress string
	// History is what the process that explains has notified. With it AdminAddress is not asked.
	History *history.History
}

// Words for [Event.What].
const (
	whatActivated    = "activated"
	whatCompanion    = "companion"
	whatDeadLettered = "dead-lettered"
	whatDeadline     = "deadline"
	whatEnqueued     = "enqueued"
	whatFailed       = "failed"
	whatMissed       = "missed"
	whatMuted        = "muted"
	whatNotified     = "notified"
	whatQueued       = "queued"
	whatSeen         = "seen"
	whatSent         = "sent"
	whatUnknown      = "unknown"
)

// An Event is one thing that is known of a message.
type Event struct {
	Time  time.Time `json:"time"`
	What  string    `json:"what"` // a word for programs
	Where string    `json:"where"`
	Text  string    `json:"text"`
}

// An Explanation is the story of a message, or of all messages with one id. Its JSON form is the
// output of `overdue explain --json`.
type Explanation struct {
	Entity    string  `json:"entity"`
	MessageID string  `json:"messageId"` // or # and the sequence number, as it was asked for
	Verdict   string  `json:"verdict"`   // one sentence
	Timeline  []Event `json:"timeline"`
	Note      string  `json:"note,omitempty"` // what could not be asked

	source   *Source
	place    dlq.Place
	notified []history.Notification // of messages with the id, in the entity
	unknown  []history.Unknown      // verdicts about messages with the id, in the entity
	gaps     []history.Gap          // of the history that has them

	found       []foundMessage             // in the queue and in the dead-letter queue
	timesToLive map[time.Duration]struct{} // of all messages that were found
	counts      counts
}

// counts are what a verdict is made of.
type counts struct {
	waiting   int // messages in the queue
	scheduled int // of these, the ones that are not active yet
	stated    int // of these, the ones with a deadline
	overdue   int // of these, the ones whose deadline is over
	dead      int // messages in the dead-letter queue
	removed   int // messages of which only the event of a monitor is left
	unknown   int // messages that are gone, and of which nobody can tell whether they met their deadline

	named      int // companions that name a message
	unfinished int // of these, the ones that are due
	slots      int // companions of slots that stand for one
	failed     int // companions that failed
}

// A foundMessage is a message of an explanation, as a peek shows it.
type foundMessage struct {
	id            string
	enqueued, due time.Time
}

// Explain puts what message, companions and monitor say of a message in the order of time.
func Explain(ctx context.Context, s *Source, o ExplainOptions) (*Explanation, error) {
	x := &Explanation{
		Entity: o.Place.String(), MessageID: address.MessageName(o.MessageID, o.Number), Timeline: []Event{},
		source: s, place: o.Place, timesToLive: map[time.Duration]struct{}{},
	}
	if _, err := s.missing(ctx, o.Place); err != nil {
		return nil, err
	}
	if o.History != nil {
		x.gaps = o.History.Gaps(time.Time{})
		x.keepNotifications(o.History.Notifications(ctx, x.MessageID))
		unknown, _ := o.History.Unknown(ctx, history.MaxUnknown)
		x.keepUnknown(unknown)
	} else {
		x.fetchNotifications(ctx, o.AdminAddress)
	}
	if err := x.readMessages(ctx); err != nil {
		return nil, err
	}
	if err := x.readCompanions(ctx); err != nil {
		return nil, err
	}
	for i := range x.notified {
		x.addNotification(&x.notified[i])
	}
	for i := range x.unknown {
		x.addUnknown(&x.unknown[i])
	}
	slices.SortStableFunc(x.Timeline, func(a, b Event) int {
		// The deadline counts as it is shown: the broker and this machine may disagree about less.
		at := a.Time.Truncate(time.Millisecond)
		return cmp.Or(at.Compare(b.Time.Truncate(time.Millisecond)), order(a.What)-order(b.What))
	})
	x.Verdict = x.counts.verdict()
	x.noteGaps()
	return x, nil
}

func (x *Explanation) add(at time.Time, what, where, format string, args ...any) {
	x.Timeline = append(x.Timeline, Event{at.UTC(), what, where, fmt.Sprintf(format, args...)})
}

// readMessages searches the queue and the dead-letter queue for the message. A search that shows
// nothing is repeated: a peek at an entity with sessions is empty at times.
func (x *Explanation) readMessages(ctx context.Context) error {
	for _, q := range []struct {
		path string
		add  func(*dlq.Letter)
	}{{x.place.String(), x.addWaiting}, {x.place.Path(), x.addDeadLetter}} {
		for read, attempt := 0, 0; read == 0 && attempt < 2; attempt++ {
			err := dlq.WalkAt(ctx, x.source.Links, q.path, 0, func(l *dlq.Letter) bool {
				if address.Names(x.MessageID, l.MessageID, l.Number) {
					x.found = append(x.found, foundMessage{l.MessageID, l.EnqueuedTime, l.Due})
					q.add(l)
				}
				read++
				return read < maxMessages
			})
			if err != nil {
				return dlq.Failure(x.place, err)
			}
		}
	}
	if x.counts.waiting+x.counts.dead == 0 && x.source.IsTopic(ctx, x.place) {
		return dlq.NoMessages(x.place) // brokers differ in whether they refuse a peek there
	}
	return nil
}

// readCompanions searches for companions of the message, which has to be known by then: that of a
// slot names none.
func (x *Explanation) readCompanions(ctx context.Context) error {
	for _, set := range []struct {
		walk func(context.Context, func(*stored) bool) error
		add  func(*stored)
	}{{x.source.pending, x.addCompanion}, {x.source.failed, x.addFailedCompanion}} {
		read := 0
		err := set.walk(ctx, func(c *stored) bool {
			if c.err == nil && x.isAbout(&c.Companion) {
				set.add(c)
			}
			read++
			return read < maxMessages
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// isAbout reports whether a companion is about the message.
func (x *Explanation) isAbout(c *scheduler.Companion) bool {
	if !strings.EqualFold(c.Entity, x.place.Entity) && !strings.EqualFold(c.Entity, x.place.String()) {
		return false
	}
	if !c.IsSlot() {
		return slices.ContainsFunc(c.References, x.isReferredTo)
	}
	for ttl := range x.timesToLive {
		if c.StandsFor(ttl) {
			return slices.ContainsFunc(x.Timeline, func(e Event) bool {
				return e.What == whatDeadline && e.Time.After(c.SlotStart()) && !e.Time.After(c.SlotEnd)
			})
		}
	}
	return false
}

// isReferredTo reports whether r stands for the message: it has its name, or that of a message which
// was found. A reference without an id stands for what was enqueued in its window with its deadline.
func (x *Explanation) isReferredTo(r scheduler.Reference) bool {
	if m := r.Missed; m != nil {
		return address.Names(x.MessageID, r.MessageID, m.SequenceNumber)
	}
	if !r.WithoutID() && r.MessageID == x.MessageID {
		return true
	}
	return slices.ContainsFunc(x.found, func(f foundMessage) bool {
		if !r.WithoutID() {
			return r.MessageID == f.id
		}
		return !f.enqueued.Before(r.From) && !f.enqueued.After(r.Until) && r.DeadlineAt(f.enqueued).Equal(f.due)
	})
}

// order is where an event stands among those of the same millisecond: a message is sent before it
// is enqueued, and its deadline is before what comes of it.
func order(what string) int {
	first := []string{whatSent, whatEnqueued, whatActivated, whatDeadline}
	if i := slices.Index(first, what); i >= 0 {
		return i
	}
	return len(first)
}

// verdict sums an explanation up in one sentence.
func (n *counts) verdict() string {
	text := n.whereabouts() + n.monitoring()
	if n.failed > 0 {
		text += "; a companion of it failed"
	}
	return text + "."
}

// whereabouts says where the message is.
func (n *counts) whereabouts() string {
	switch {
	case n.waiting > 0 && n.dead > 0:
		return "in its queue and in the dead-letter queue"
	case n.dead > 0:
		return "in the dead-letter queue"
	case n.waiting > 0 && n.scheduled == n.waiting:
		return "scheduled"
	case n.waiting > 0 && n.overdue == n.waiting:
		return "in its queue, past its deadline"
	case n.waiting > 0:
		return "in its queue"
	case n.removed > 0:
		return "not there any more: it missed its deadline, and has left the dead-letter queue since"
	case n.unknown > 0:
		return "not there any more: nobody can tell whether it met its deadline"
	case n.named+n.failed > 0:
		return "not there any more: it was completed, or removed from the dead-letter queue"
	}
	return "not there: it was completed, removed from the dead-letter queue, or never sent"
}

// monitoring says whether a monitor sees to the message.
func (n *counts) monitoring() string {
	switch {
	case n.waiting == 0 && n.unfinished > 0:
		return "; the monitor has not finished with its companion"
	case n.waiting == 0 && n.named > 0:
		return "; its companion is not due yet"
	case n.waiting == 0:
		return ""
	case n.named > 0:
		return ", and monitored"
	case n.slots > 0:
		return ", and monitored by the companion of its slot"
	case n.stated == 0:
		return ", and not monitored: it states no deadline"
	case n.overdue > 0:
		return ", and not monitored: its entity is not in monitor.entities, it was sent past Overdue, or was checked already"
	}
	return ", and not monitored: its entity is not in monitor.entities, it was sent past Overdue, or its companion is still in the journal of a proxy"
}

// WriteText writes the explanation for people. width is that of the terminal, 0 without one: lines
// are not broken then.
func (x *Explanation) WriteText(w io.Writer, width int) error {
	var b bytes.Buffer
	fmt.Fprintln(&b, terminal.Wrap(fmt.Sprintf("%s in %s is %s", escape.Text(x.MessageID), escape.Text(x.Entity), x.Verdict), width, 0))
	for _, e := range x.Timeline {
		stamp := "  " + e.Time.Format(timeFormat) + "  "
		fmt.Fprintln(&b, stamp+terminal.Wrap(escape.Text(e.Text), width, utf8.RuneCountInString(stamp)))
	}
	if x.Note != "" {
		fmt.Fprintln(&b, terminal.Wrap(escape.Text(x.Note), width, 0))
	}
	_, err := b.WriteTo(w)
	return err
}
