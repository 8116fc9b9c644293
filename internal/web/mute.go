// SPDX-License-Identifier: Apache-2.0

package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"overdue/internal/operator/audit"
	"overdue/internal/operator/dlq"
	"overdue/internal/servicebus/duration"
	"overdue/monitor/mute"
)

const (
	muting   = "mute"
	unmuting = "unmute"
)

// A muteView has the form that mutes an entity, or ends its mute.
type muteView struct {
	page
	Entity, Span string
	Mute         *mute.Mute // the one in force
	Back         string
	actor
}

func muteLink(entity string) string { return Path + "mute?" + values("entity", entity) }

// mute shows the form, and does what it says. After an error it shows again what was typed.
func (a *actionPages) mute(w http.ResponseWriter, r *http.Request) {
	place, err := dlq.ParsePlace(strings.TrimSpace(bounded(r.FormValue("entity"), maxParameter)))
	if err != nil {
		a.refuse(w, badRequest(err))
		return
	}
	entity := place.String()
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	if r.Method == http.MethodPost {
		if err = a.changeMute(ctx, r, place); err == nil {
			http.Redirect(w, r, muteLink(entity), http.StatusSeeOther)
			return
		}
	}
	v := &muteView{page: a.page("overview", "Mute "+entity), Entity: entity, Span: r.PostForm.Get("for"), Back: Path + "entity?" + values("name", entity)}
	v.actor, _ = a.Actions.actorOf(r) // its error is that of changeMute
	all, readErr := a.source.Mutes(ctx)
	if i := slices.IndexFunc(all, func(m mute.Mute) bool { return strings.EqualFold(m.Entity, entity) }); i >= 0 {
		v.Mute = &all[i]
	}
	show(w, "mute.html", v, cmp.Or(err, readErr))
}

// changeMute checks the form, and does what it says.
func (a *actionPages) changeMute(ctx context.Context, r *http.Request, place dlq.Place) (err error) {
	line := audit.Line{Action: muting, Entity: place.String()}
	var span time.Duration
	if r.PostForm.Has("end") {
		line.Action = unmuting
	} else if span, err = duration.Parse(strings.TrimSpace(r.PostForm.Get("for"))); err != nil || span < time.Second || span > mute.MaxFor {
		return badRequest(fmt.Errorf("the time is a duration from 1s to %s, such as 30m or 2h: %.50q is none", duration.Format(mute.MaxFor), r.PostForm.Get("for")))
	}
	if err := a.authorize(r, &line); err != nil {
		return err
	}
	if err := a.Deadlines.MustExist(ctx, place); err != nil {
		return badRequest(err)
	}
	line.Event = audit.Started
	a.Actions.Audit(line)
	line.Event = audit.Ended
	_, line.Err = a.Actions.Mute(ctx, mute.Mute{
		Entity: line.Entity,
		By:     line.Person,
		Reason: line.Why,
	}, span)
	a.Actions.Audit(line)
	if errors.Is(line.Err, mute.ErrNotMuted) {
		return refusal{http.StatusConflict, line.Entity + " is not muted, so there is no mute to end"}
	}
	return line.Err
}
