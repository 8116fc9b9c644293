// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"overdue/internal/config"
	"overdue/internal/escape"
	"overdue/internal/notifications"
	"overdue/internal/operator/dlq"
	"overdue/internal/servicebus/link"
	"overdue/scheduler"
)

// milliseconds is how finely the broker stamps, and how finely its times are shown.
const milliseconds = "2006-01-02T15:04:05.000Z"

// explainMost bounds how many messages of one queue are looked at.
const explainMost = 1_000_000

type explainOptions struct {
	handsOptions
	json bool
}

func (p *program) explainCommand() *cobra.Command {
	var o explainOptions
	cmd := &cobra.Command{
		Use:   "explain queue-or-subscription message-id",
		Short: "Show what is known of a message: sent, watched, due, dead-lettered, told",
		Long: "Looks for the message in its queue and in its dead-letter queue, and for its companions on the monitor queue\n" +
			"and among those that could not be done, and puts what they say in the order of time. What has been completed has\n" +
			"left no trace in the broker: who was told of a missed deadline, and how late it was, is asked of the Overdue at\n" +
			"listen.admin, which remembers its last 2,000 events. Looking is peeking, page by page, and disturbs nothing.",
		Example: "  overdue explain orders order-1\n  overdue explain events/Subscriptions/audit 4711 --json",
	}
	load := p.configFlags(cmd, func(path string) bool {
		return path == "namespace" || path == "monitorQueue" || isAdminAddress(path)
	})
	o.flags(cmd)
	cmd.Flags().BoolVar(&o.json, "json", false, "print the result as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		place, err := dlq.ParsePlace(args[0])
		if err != nil {
			return &config.Error{Err: err}
		}
		c, err := load()
		if err != nil {
			return err
		}
		return p.explain(cmd.Context(), c, place, args[1], o)
	}
	return cmd
}

// happening is one thing that is known of a message.
type happening struct {
	Time  time.Time `json:"time"`
	What  string    `json:"what"` // a word for programs
	Where string    `json:"where"`
	Text  string    `json:"text"`
}

// explanation is the JSON form of the command's result.
type explanation struct {
	Entity    string      `json:"entity"`
	MessageID string      `json:"messageId"`
	Verdict   string      `json:"verdict"`
	Timeline  []happening `json:"timeline"`
	Note      string      `json:"note,omitempty"` // what could not be asked

	place                                 dlq.Place
	notified                              []notifications.Fetched // events about messages of that id
	waiting, dead, watched, slots, undone int
	lives                                 map[time.Duration]bool // of the messages that were found
	keeper                                string                 // what has the companions
}

func (x *explanation) add(at time.Time, what, where, format string, args ...any) {
	x.Timeline = append(x.Timeline, happening{at.UTC(), what, where, fmt.Sprintf(format, args...)})
}

func (p *program) explain(ctx context.Context, c *config.Config, place dlq.Place, id string, o explainOptions) error {
	h, err := p.eyes(ctx, c, o.handsOptions)
	if err != nil {
		return err
	}
	defer h.close()
	x := &explanation{place: place, Entity: place.String(), MessageID: id, Timeline: []happening{}, lives: map[time.Duration]bool{}, keeper: "the monitor queue"}
	if c.CompanionsInRedis() {
		x.keeper = config.StoreRedis
	}
	x.ask(ctx, c, place)
	if err := x.lookFor(ctx, h, place.String(), x.found); err != nil {
		return dlqFailure(place, err)
	}
	if err := x.lookFor(ctx, h, place.Path(), x.foundDead); err != nil {
		return dlqFailure(place, err)
	}
	if x.waiting+x.dead == 0 && h.isTopic(ctx, place) {
		return noPlace(place)
	}
	for _, queue := range []string{c.MonitorQueue, dlq.Place{Entity: c.MonitorQueue}.Path()} {
		undone := queue != c.MonitorQueue
		seen := 0
		if err := h.companions(ctx, queue, func(l *dlq.Letter, c scheduler.Companion, bad error) bool {
			if bad == nil && x.covers(&c, place) {
				x.companion(l, &c, undone)
			}
			seen++
			return seen < explainMost
		}); err != nil {
			return err
		}
	}
	for i := range x.notified {
		x.notification(&x.notified[i])
	}
	slices.SortStableFunc(x.Timeline, func(a, b happening) int { return a.Time.Compare(b.Time) })
	x.Verdict = x.verdict()
	if o.json {
		return escape.WriteJSON(p.stdout, x)
	}
	fmt.Fprintf(p.stdout, "%s in %s: %s\n", escape.Text(id), x.Entity, x.Verdict)
	for _, e := range x.Timeline {
		if _, err = fmt.Fprintf(p.stdout, "  %s  %s\n", e.Time.Format(milliseconds), escape.Text(e.Text)); err != nil {
			return err
		}
	}
	if x.Note != "" {
		_, err = fmt.Fprintf(p.stdout, "%s\n", x.Note)
	}
	return err
}

// lookFor shows found the messages with the id.
func (x *explanation) lookFor(ctx context.Context, h *hands, path string, found func(*dlq.Letter)) error {
	seen := 0
	return dlq.WalkAt(ctx, h.links, path, 0, func(l *dlq.Letter) bool {
		if l.MessageID == x.MessageID {
			found(l)
		}
		seen++
		return seen < explainMost
	})
}

// enqueued is what any message says of its beginning.
func (x *explanation) enqueued(l *dlq.Letter, where string) {
	life := "without a time to live of its own"
	if l.TimeToLive > 0 {
		life = "to live for " + l.TimeToLive.String()
		x.lives[l.TimeToLive] = true
	}
	session := ""
	if l.SessionID != nil {
		session = fmt.Sprintf(", in session %q", *l.SessionID)
	}
	x.add(l.EnqueuedTime, "enqueued", where, "enqueued as number %d%s, %s", l.Number, session, life)
	if !l.Due.IsZero() {
		x.add(l.Due, "deadline", where, "its deadline, by what it states itself")
	}
}

// found is for a message that is where it was sent.
func (x *explanation) found(l *dlq.Letter) {
	x.waiting++
	if l.State == link.Scheduled {
		x.add(l.ScheduledTime, "activated", x.Entity, "becomes active; its time starts then")
		return
	}
	x.enqueued(l, x.Entity)
	state := "waits, or a consumer has it locked, which a peek does not tell"
	if l.State == link.Deferred {
		state = "has been set aside (deferred)"
	}
	if l.DeliveryCount > 0 {
		state += fmt.Sprintf("; %d deliveries have failed", l.DeliveryCount)
	}
	x.add(time.Now(), "seen", x.Entity, "%s", state)
}

// foundDead is for a dead letter.
func (x *explanation) foundDead(l *dlq.Letter) {
	x.dead++
	where := x.place.Path()
	x.enqueued(l, where)
	why := cmp.Or(l.Reason, "without a reason")
	if l.Description != "" {
		why += ": " + l.Description
	}
	if d := x.missed(l); d != nil {
		x.add(d.DeadLetteredTime, "dead-lettered", where, "dead-lettered %s after its deadline (%s), %s", d.Lag().Round(time.Millisecond), d.Strategy, why)
		return
	}
	// Service Bus does not stamp when.
	at := l.EnqueuedTime
	if l.Due.After(at) {
		at = l.Due
	}
	x.add(at, "dead-lettered", where, "dead-lettered some time after this, %s", why)
}

// covers reports whether a companion is about the message.
func (x *explanation) covers(c *scheduler.Companion, place dlq.Place) bool {
	if !strings.EqualFold(c.Entity, place.Entity) && !strings.EqualFold(c.Entity, place.String()) {
		return false
	}
	if c.Kind == scheduler.KindSlot {
		for life := range x.lives {
			if c.StandsFor(life) {
				return slices.ContainsFunc(x.Timeline, func(e happening) bool {
					return e.What == "deadline" && e.Time.After(c.SlotStart()) && !e.Time.After(c.SlotEnd)
				})
			}
		}
		return false
	}
	return slices.ContainsFunc(c.References, func(r scheduler.Reference) bool { return r.MessageID == x.MessageID })
}

// companion adds what one has to say.
func (x *explanation) companion(l *dlq.Letter, c *scheduler.Companion, undone bool) {
	where := x.keeper
	due := l.ScheduledTime
	if due.IsZero() {
		due = l.EnqueuedTime
	}
	switch {
	case undone:
		x.undone++
		x.add(due, "undone", where, "its companion was given up, %s: %s", l.Reason, l.Description)
	case c.Kind == scheduler.KindSlot:
		x.slots++
		x.add(due, "companion", where, "the alarm of its slot rings")
	case l.State == link.Scheduled:
		x.watched++
		x.add(due, "companion", where, "its companion rings")
	default:
		x.watched++
		x.add(due, "companion", where, "its companion has rung, and is not done with: a monitor has it in hand, or none runs")
	}
	for _, r := range c.References {
		if r.MessageID != x.MessageID {
			continue
		}
		x.add(r.Sent, "sent", where, "a sidecar made its companion")
		if !undone && x.waiting+x.dead == 0 {
			x.add(r.Deadline, "deadline", where, "its deadline (%s)", r.Stated)
		}
		if m := r.Missed; m != nil {
			x.add(m.DeadLetteredTime, "missed", where, "found to have missed its deadline (%s, %s)", m.Strategy, m.DeadLetterReason)
			if len(m.TakenBy) > 0 {
				x.add(m.DeadLetteredTime, "told", where, "told so far: %s", strings.Join(m.TakenBy, ", "))
			}
		}
	}
}

// verdict sums it up in a sentence.
func (x *explanation) verdict() string {
	var s []string
	if x.waiting > 0 {
		s = append(s, "it is in its queue")
	}
	if x.dead > 0 {
		s = append(s, "it is a dead letter")
	}
	if x.waiting+x.dead == 0 {
		s = append(s, "it is not there: it was completed, or taken off the dead-letter queue, or never came")
	}
	switch {
	case x.watched > 0 && x.waiting > 0:
		s = append(s, "and it is watched")
	case x.slots > 0 && x.waiting > 0:
		s = append(s, "and the alarm of its slot watches over it")
	case x.watched > 0:
		s = append(s, "and its companion is still to be done with")
	case x.waiting > 0:
		s = append(s, "and no companion is about it: it was sent past Overdue, has no deadline, or was looked at already")
	}
	if x.undone > 0 {
		s = append(s, "and a companion of it was given up")
	}
	return strings.Join(s, ", ") + "."
}
