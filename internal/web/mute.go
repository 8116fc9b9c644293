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
	Missing      bool       // there is no form
	Mute         *mute.Mute // the one in force
	Back         string
	actor
}

// mute shows the form.
func (d *Dashboard) mute(w http.ResponseWriter, r *http.Request) {
	d.showMute(w, r, parameter(r, "entity"), nil)
}

// setMute takes the form.
func (d *Dashboard) setMute(w http.ResponseWriter, r *http.Request) {
	if !d.mayAct(w, r) {
		return
	}
	entity := bounded(r.PostForm.Get("entity"), maxParameter)
	if err := d.changeMute(r, entity); err != nil {
		d.showMute(w, r, entity, err)
		return
	}
	http.Redirect(w, r, muteLink(entity), http.StatusSeeOther)
}

func muteLink(entity string) string { return Path + "mute?" + values("entity", entity) }

// showMute shows the form, after an error with what was typed.
func (d *Dashboard) showMute(w http.ResponseWriter, r *http.Request, entity string, refused error) {
	v := &muteView{page: d.page("overview", "Mute "+entity), Entity: entity, Span: r.PostForm.Get("for"), Back: Path + "entity?" + values("name", entity)}
	err := refused
	place, parseErr := dlq.ParsePlace(strings.TrimSpace(entity))
	switch {
	case d.source.Namespace.Actions == nil || d.source.Namespace.Actions.Mute == nil:
		err, v.Missing = errOnlyReads, true
	case parseErr != nil:
		err, v.Missing = badRequest(parseErr), true
	default:
		v.Entity = place.String()
		v.actor, _ = d.source.Namespace.Actions.actorOf(r) // its error is that of changeMute
		ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
		defer cancel()
		all, readErr := d.source.Mutes(ctx)
		err = cmp.Or(err, readErr)
		if i := slices.IndexFunc(all, func(m mute.Mute) bool { return strings.EqualFold(m.Entity, v.Entity) }); i >= 0 {
			v.Mute = &all[i]
		}
	}
	show(w, "mute.html", v, err)
}

// changeMute checks the form, and does what it says.
func (d *Dashboard) changeMute(r *http.Request, entity string) error {
	a := d.source.Namespace.Actions
	if a.Mute == nil {
		return nil // the page says why
	}
	place, err := dlq.ParsePlace(strings.TrimSpace(entity))
	if err != nil {
		return badRequest(err)
	}
	line := audit.Line{Action: muting, Entity: place.String()}
	var span time.Duration
	if r.PostForm.Has("end") {
		line.Action = unmuting
	} else if span, err = duration.Parse(strings.TrimSpace(r.PostForm.Get("for"))); err != nil || span < time.Second || span > mute.MaxFor {
		return badRequest(fmt.Errorf("the time is a duration from 1s to %dd, such as 30m or 2h: %.50q is none", mute.MaxFor/(24*time.Hour), r.PostForm.Get("for")))
	}
	if err := d.authorize(r, &line); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	if err := d.source.Namespace.Deadlines.MustExist(ctx, place); err != nil {
		return badRequest(err)
	}
	line.Event = audit.Started
	a.Audit(line)
	line.Event = audit.Ended
	_, line.Err = a.Mute(ctx, mute.Mute{
		Entity: line.Entity,
		By:     line.Person,
		Reason: line.Why,
	}, span)
	a.Audit(line)
	if errors.Is(line.Err, mute.ErrNotMuted) {
		return refusal{http.StatusConflict, line.Entity + " is not muted, so there is no mute to end"}
	}
	return line.Err
}
