// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"overdue/internal/operator/deadlines"
	"overdue/internal/operator/dlq"
)

// maxUpcoming bounds the deadlines on one page.
const maxUpcoming = 50

// A pendingView is what `overdue deadlines` lists.
type pendingView struct {
	page
	Entity, Error string
	NoNamespace   bool
	Keeper        string
	Rows          []pendingRow
	More          bool
	Unreadable    string // "" = all can be read
	Upcoming      []upcomingRow
}

type pendingRow struct {
	Name, Link, Deadlines, Slots, Due, Next, In, Last string
	IsDue                                             bool
}

type upcomingRow struct{ Deadline, In, MessageID, SessionID, Sent, Link string }

// pending shows the deadlines that are to come, and which is due next.
func (d *Dashboard) pending(w http.ResponseWriter, r *http.Request) {
	v := &pendingView{page: d.page("deadlines", "Pending deadlines"), Entity: strings.TrimSpace(parameter(r, "entity"))}
	status := http.StatusOK
	if v.NoNamespace = d.source.Namespace == nil; !v.NoNamespace {
		if err := v.read(r.Context(), d); err != nil {
			v.Error, status = err.Error(), statusOf(err)
		}
	}
	show(w, status, "deadlines.html", v)
}

func (v *pendingView) read(ctx context.Context, d *Dashboard) error {
	if v.Entity != "" {
		at, err := dlq.ParsePlace(v.Entity)
		if err != nil {
			return badRequest(err)
		}
		v.Entity = at.Entity // companions name the topic
	}
	ctx, leave, err := d.enter(ctx, readTimeout)
	if err != nil {
		return err
	}
	defer leave()
	s := d.source.Namespace.Deadlines
	all, err := deadlines.List(ctx, s, deadlines.ListOptions{Entity: v.Entity, Limit: maxUpcoming})
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return errors.New("the monitor queue is too long to be read in the time that a page has; run `overdue deadlines`")
	}
	if err != nil {
		return err
	}
	now := time.Now()
	v.More = all.More
	if all.Unreadable > 0 {
		v.Unreadable = number(float64(all.Unreadable))
	}
	for _, e := range all.Entities {
		if strings.EqualFold(e.Entity, d.source.Canary) || len(v.Rows) == maxRows {
			continue
		}
		v.Rows = append(v.Rows, pendingRow{
			Name: e.Entity, Link: Path + "deadlines?" + values("entity", e.Entity), Deadlines: number(float64(e.Deadlines)), Slots: number(float64(e.Slots)),
			Due: number(float64(e.Due)), IsDue: e.Due > 0, Next: stamp(e.Next), In: until(e.Next, now), Last: stamp(e.Last),
		})
	}
	for i := range all.Upcoming {
		u := &all.Upcoming[i]
		row := upcomingRow{Deadline: stamp(u.Deadline), In: until(u.Deadline, now), MessageID: u.Name(), SessionID: u.SessionID, Sent: stamp(u.Sent)}
		if row.MessageID != "" {
			row.Link = messageLink(dlq.Place{Entity: v.Entity}, row.MessageID)
		}
		v.Upcoming = append(v.Upcoming, row)
	}
	return nil
}

// until says in how long t is, or how long ago.
func until(t, now time.Time) string {
	if d := t.Sub(now); d >= 0 {
		return "in " + span(d)
	}
	return span(now.Sub(t)) + " ago"
}
