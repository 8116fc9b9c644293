// SPDX-License-Identifier: Apache-2.0

package deadlines

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"overdue/internal/notifications"
	"overdue/internal/operator/dlq"
	"overdue/scheduler"
)

// ExplainOptions say which message to explain. Place and MessageID are required.
type ExplainOptions struct {
	Place     dlq.Place
	MessageID string
	// AdminAddress is host:port of an admin port on this machine, that of the monitor if there is
	// one; "" if no port is known. What was notified is asked there.
	AdminAddress string
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
	whatNotified     = "notified"
	whatSeen         = "seen"
	whatSent         = "sent"
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
	MessageID string  `json:"messageId"`
	Verdict   string  `json:"verdict"` // one sentence
	Timeline  []Event `json:"timeline"`
	Note      string  `json:"note,omitempty"` // what could not be asked

	source   *Source
	place    dlq.Place
	notified []notifications.Fetched // of messages with the id, in the entity

	waiting, dead int                        // messages that were found
	timesToLive   map[time.Duration]struct{} // of the same messages
	named         int                        // companions that name a message
	slots         int                        // companions of slots that stand for one
	failed        int                        // companions that failed
}

// Explain puts what message, companions and monitor say of a message in the order of time.
func Explain(ctx context.Context, s *Source, o ExplainOptions) (*Explanation, error) {
	x := &Explanation{
		Entity: o.Place.String(), MessageID: o.MessageID, Timeline: []Event{},
		source: s, place: o.Place, timesToLive: map[time.Duration]struct{}{},
	}
	x.fetchNotifications(ctx, o.AdminAddress)
	if err := x.readMessages(ctx); err != nil {
		return nil, err
	}
	if err := x.readCompanions(ctx); err != nil {
		return nil, err
	}
	for i := range x.notified {
		x.addNotification(&x.notified[i])
	}
	slices.SortStableFunc(x.Timeline, func(a, b Event) int { return a.Time.Compare(b.Time) })
	x.Verdict = x.verdict()
	return x, nil
}

func (x *Explanation) add(at time.Time, what, where, format string, args ...any) {
	x.Timeline = append(x.Timeline, Event{at.UTC(), what, where, fmt.Sprintf(format, args...)})
}

// readMessages looks for the message in its queue and in the dead-letter queue.
func (x *Explanation) readMessages(ctx context.Context) error {
	for _, q := range []struct {
		path string
		add  func(*dlq.Letter)
	}{{x.place.String(), x.addWaiting}, {x.place.Path(), x.addDeadLetter}} {
		read := 0
		err := dlq.WalkAt(ctx, x.source.Links, q.path, 0, func(l *dlq.Letter) bool {
			if l.MessageID == x.MessageID {
				q.add(l)
			}
			read++
			return read < maxMessages
		})
		if err != nil {
			return dlq.Failure(x.place, err)
		}
	}
	if x.waiting+x.dead == 0 && x.source.IsTopic != nil && x.source.IsTopic(ctx, x.place) {
		return dlq.NoMessages(x.place) // brokers differ in whether they refuse a peek there
	}
	return nil
}

// readCompanions looks for companions of the message, which has to be known by then: that of a slot
// names none.
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
	if c.Kind != scheduler.KindSlot {
		return slices.ContainsFunc(c.References, func(r scheduler.Reference) bool { return r.MessageID == x.MessageID })
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

// verdict sums the timeline up in one sentence.
func (x *Explanation) verdict() string {
	var where string
	switch {
	case x.waiting+x.dead == 0:
		where = "not there: it was completed, removed from the dead-letter queue, or never sent"
	case x.dead == 0:
		where = "in its queue"
	case x.waiting == 0:
		where = "in the dead-letter queue"
	default:
		where = "in its queue and in the dead-letter queue"
	}
	var watch string
	switch {
	case x.waiting == 0 && x.named > 0:
		watch = "; the monitor has not finished with its companion"
	case x.waiting == 0:
	case x.named > 0:
		watch = ", and monitored"
	case x.slots > 0:
		watch = ", and monitored by the companion of its slot"
	default:
		watch = ", and not monitored: it was sent past Overdue, has no deadline, or was checked already"
	}
	if x.failed > 0 {
		watch += "; a companion of it failed"
	}
	return where + watch + "."
}
