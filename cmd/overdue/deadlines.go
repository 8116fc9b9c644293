// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"overdue/internal/config"
	"overdue/internal/escape"
	"overdue/internal/operator/dlq"
	"overdue/internal/operator/doctor"
	"overdue/internal/redisstore"
	"overdue/internal/servicebus/link"
	"overdue/scheduler"
)

// deadlinesMost bounds how many companions are looked at.
const deadlinesMost = 1_000_000

type deadlinesOptions struct {
	handsOptions
	limit int
	json  bool
}

func (p *program) deadlinesCommand() *cobra.Command {
	var o deadlinesOptions
	cmd := &cobra.Command{
		Use:   "deadlines [queue or topic]",
		Short: "Show which deadlines are outstanding, and which are due next",
		Long: "Looks at the companions on the monitor queue, which are what Overdue will look for, whoever runs: how many\n" +
			"deadlines of which entity, and when the next ones are. With a queue or topic it lists those. Messages for which\n" +
			"an alarm of a whole slot stands are not named anywhere before it rings; their alarms are counted. Looking is\n" +
			"peeking, and disturbs nothing. With a Redis it shows as well what all monitors have in hand and have seen\n" +
			"missed.",
		Example: "  overdue deadlines\n  overdue deadlines orders --limit 20",
	}
	load := p.configFlags(cmd, func(path string) bool { return path == "namespace" || path == "monitorQueue" })
	o.flags(cmd)
	cmd.Flags().IntVar(&o.limit, "limit", 50, "with a queue or topic: how many of the next deadlines to list, 1 to 100000")
	cmd.Flags().BoolVar(&o.json, "json", false, "print the result as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		entity := ""
		if len(args) > 0 {
			if entity = args[0]; config.CheckEntity(entity) != nil {
				return &config.Error{Err: config.CheckEntity(entity)}
			}
		}
		if o.limit < 1 || o.limit > 100_000 {
			return &config.Error{Err: fmt.Errorf("--limit is %d; it must be between 1 and 100000", o.limit)}
		}
		c, err := load()
		if err != nil {
			return err
		}
		return p.deadlines(cmd.Context(), c, entity, o)
	}
	return cmd
}

// outstanding is what waits for one entity.
type outstanding struct {
	Entity     string    `json:"entity"`
	Companions int       `json:"companions"`
	Deadlines  int       `json:"deadlines"` // that are named
	Slots      int       `json:"slots"`     // alarms of slots, each for any number of messages
	Ringing    int       `json:"ringing"`   // companions that are due and not done with
	Next       time.Time `json:"nextDue"`
	Last       time.Time `json:"lastDue"`
}

// upcoming is one deadline that is named.
type upcoming struct {
	Deadline  time.Time `json:"deadline"`
	MessageID string    `json:"messageId,omitempty"`
	SessionID string    `json:"sessionId,omitempty"`
	Sent      time.Time `json:"sent"`
	Stated    string    `json:"stated"`
	Missed    bool      `json:"missed,omitempty"` // it has been expired, and is still to be told
}

// deadlinesResult is the JSON form of the command's result.
type deadlinesResult struct {
	MonitorQueue string         `json:"monitorQueue"`
	Entities     []*outstanding `json:"entities"`
	Upcoming     []upcoming     `json:"upcoming,omitempty"`
	Unreadable   int            `json:"unreadable,omitempty"`
	More         bool           `json:"more,omitempty"`   // there are more companions than were looked at
	Undone       map[string]int `json:"undone,omitempty"` // companions in Redis that could not be done, by reason

	Fleet *fleetDeadlines `json:"fleet,omitempty"` // nil: there is no Redis
}

// companions shows f the companions that there are, with what the broker says of each.
func (h *hands) companions(ctx context.Context, queue string, f func(*dlq.Letter, scheduler.Companion, error) (more bool)) error {
	if h.cfg.CompanionsInRedis() {
		return h.storedCompanions(ctx, queue != h.cfg.MonitorQueue, f)
	}
	err := dlq.WalkAt(ctx, h.links, queue, 0, func(l *dlq.Letter) bool {
		if l.ContentType != scheduler.ContentType {
			return true
		}
		body, err := l.Body()
		text, isBytes := body.([]byte)
		if err != nil || !isBytes {
			return f(l, scheduler.Companion{}, errors.New("it is no data"))
		}
		c, err := scheduler.ParseCompanion(text)
		return f(l, c, err)
	})
	if link.Condition(err) == link.ConditionNotFound {
		return fmt.Errorf("there is no monitor queue %q; `overdue doctor --fix` makes it", queue)
	}
	switch {
	case err == nil:
		return nil
	case isUnauthorized(err):
		return noRightToListen(queue)
	}
	return cmp.Or(unreachable(err), fmt.Errorf("companions in %s: %s", queue, doctor.Reason(err)))
}

// storedCompanions is companions where Redis has them: those that are to be done, or those that could not be.
func (h *hands) storedCompanions(ctx context.Context, undone bool, f func(*dlq.Letter, scheduler.Companion, error) (more bool)) error {
	store, err := h.redis()
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }() // it was only read
	show := func(it *redisstore.Item, l *dlq.Letter) bool {
		if it.ContentType != scheduler.ContentType {
			return true
		}
		l.MessageID, l.ContentType, l.EnqueuedTime, l.ScheduledTime = it.ID, it.ContentType, it.Due, it.Due
		if it.Due.After(time.Now()) {
			l.State = link.Scheduled
		}
		c, err := scheduler.ParseCompanion(it.Body)
		return f(l, c, err)
	}
	if undone {
		err = store.Companions().Dead(ctx, func(d redisstore.Dead) bool {
			return show(&d.Item, &dlq.Letter{Reason: d.Reason, Description: d.Description})
		})
	} else {
		err = store.Companions().Walk(ctx, func(it redisstore.Item) bool { return show(&it, &dlq.Letter{}) })
	}
	if err != nil {
		return fmt.Errorf("companions: %w", err)
	}
	return nil
}

// undone counts what Redis has that could not be done, by reason.
func (h *hands) undone(ctx context.Context, by map[string]int) error {
	store, err := h.redis()
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }() // it was only read
	return store.Companions().Dead(ctx, func(d redisstore.Dead) bool {
		by[d.Reason]++
		return true
	})
}

func (p *program) deadlines(ctx context.Context, c *config.Config, entity string, o deadlinesOptions) error {
	h, err := p.eyes(ctx, c, o.handsOptions)
	if err != nil {
		return err
	}
	defer h.close()
	r := deadlinesResult{MonitorQueue: c.MonitorQueue, Entities: []*outstanding{}}
	by := map[string]*outstanding{}
	looked := 0
	err = h.companions(ctx, c.MonitorQueue, func(l *dlq.Letter, c scheduler.Companion, bad error) bool {
		if looked++; looked > deadlinesMost {
			r.More = true
			return false
		}
		if bad != nil {
			r.Unreadable++
			return true
		}
		if entity != "" && !strings.EqualFold(c.Entity, entity) {
			return true
		}
		out := by[strings.ToLower(c.Entity)]
		if out == nil {
			out = &outstanding{Entity: c.Entity}
			by[strings.ToLower(c.Entity)] = out
			r.Entities = append(r.Entities, out)
		}
		out.add(l, &c)
		if entity != "" {
			r.Upcoming = upcomingOf(r.Upcoming, &c, o.limit)
		}
		return true
	})
	if err != nil {
		return err
	}
	if c.CompanionsInRedis() { // elsewhere they are dead letters, which others show
		r.Undone = map[string]int{}
		if err := h.undone(ctx, r.Undone); err != nil {
			return err
		}
	}
	slices.SortFunc(r.Entities, func(a, b *outstanding) int { return strings.Compare(a.Entity, b.Entity) })
	r.Upcoming = first(r.Upcoming, o.limit)
	r.Fleet = h.fleetDeadlines(ctx, entity)
	if o.json {
		return escape.WriteJSON(p.stdout, r)
	}
	return r.write(p, time.Now())
}

// add counts one companion.
func (out *outstanding) add(l *dlq.Letter, c *scheduler.Companion) {
	out.Companions++
	out.Deadlines += len(c.References)
	if c.Kind == scheduler.KindSlot {
		out.Slots++
	}
	due := l.ScheduledTime
	if due.IsZero() {
		due = l.EnqueuedTime
	}
	if l.State != link.Scheduled {
		out.Ringing++
	}
	if out.Next.IsZero() || due.Before(out.Next) {
		out.Next = due
	}
	if due.After(out.Last) {
		out.Last = due
	}
}

// upcomingOf adds what c names, and keeps memory bounded.
func upcomingOf(all []upcoming, c *scheduler.Companion, limit int) []upcoming {
	for _, r := range c.References {
		all = append(all, upcoming{r.Deadline, r.MessageID, r.SessionID, r.Sent, r.Stated, r.Missed != nil})
	}
	if len(all) > 4*limit+1000 {
		all = first(all, limit)
	}
	return all
}

// first are the n that are due first.
func first(all []upcoming, n int) []upcoming {
	slices.SortStableFunc(all, func(a, b upcoming) int {
		return cmp.Or(a.Deadline.Compare(b.Deadline), strings.Compare(a.MessageID, b.MessageID))
	})
	return all[:min(n, len(all))]
}

// write prints the result for who reads it.
func (r *deadlinesResult) write(p *program, now time.Time) error {
	t := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	if len(r.Entities) == 0 {
		fmt.Fprintf(t, "No deadline is outstanding in %s.\n", r.MonitorQueue)
	} else {
		fmt.Fprintln(t, "ENTITY\tDEADLINES\tSLOTS\tRINGING\tNEXT DUE\tLAST DUE")
	}
	for _, e := range r.Entities {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%s\t%s\n", escape.Text(e.Entity), e.Deadlines, e.Slots, e.Ringing, until(e.Next, now), until(e.Last, now))
	}
	if len(r.Upcoming) > 0 {
		fmt.Fprintln(t, "\nDEADLINE\tIN\tMESSAGE-ID\tSESSION\tSTATED")
	}
	for _, u := range r.Upcoming {
		stated := u.Stated
		if u.Missed {
			stated += ", missed, still to be told"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", u.Deadline.UTC().Format(milliseconds), until(u.Deadline, now), escape.Text(cmp.Or(u.MessageID, "–")), escape.Text(cmp.Or(u.SessionID, "–")), stated)
	}
	r.Fleet.write(t)
	if r.Unreadable > 0 {
		fmt.Fprintf(t, "%d companions cannot be read; the monitor will put them into the dead-letter queue of %s.\n", r.Unreadable, r.MonitorQueue)
	}
	for reason, n := range r.Undone {
		fmt.Fprintf(t, "%d companions could not be done: %s.\n", n, escape.Text(reason))
	}
	if r.More {
		fmt.Fprintf(t, "There are more companions than the %d that were looked at.\n", deadlinesMost)
	}
	for _, e := range r.Entities {
		if e.Ringing > 0 && now.Sub(e.Next) > time.Minute {
			fmt.Fprintf(t, "%s has companions that were due more than a minute ago: consumers hold their messages, or no monitor runs.\n", escape.Text(e.Entity))
		}
	}
	return t.Flush()
}

// until is how far away t is.
func until(t, now time.Time) string {
	d := t.Sub(now)
	switch {
	case d < 0:
		return d.Round(time.Second).Abs().String() + " ago"
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
