// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"overdue/internal/operator/deadlines"
	"overdue/internal/operator/dlq"
)

// maxUpcoming bounds the deadlines on one page.
const maxUpcoming = 50

// A pendingView is what `overdue deadlines` lists.
type pendingView struct {
	page
	Entity string
	*deadlines.Listing
}

// pending shows the deadlines that are to come, and which is due next.
func (d *Dashboard) pending(w http.ResponseWriter, r *http.Request) {
	v := &pendingView{page: d.page("deadlines", "Pending deadlines"), Entity: strings.TrimSpace(parameter(r, "entity"))}
	show(w, "deadlines.html", v, v.read(r.Context(), d))
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
	all.Entities = slices.DeleteFunc(all.Entities, func(e *deadlines.Entity) bool { return strings.EqualFold(e.Entity, d.source.Canary) })
	all.Entities = all.Entities[:min(len(all.Entities), maxRows)]
	v.Listing = all
	return nil
}
