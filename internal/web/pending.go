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
func (m *messagePages) pending(w http.ResponseWriter, r *http.Request) {
	v := &pendingView{page: m.page("deadlines", "Pending deadlines"), Entity: strings.TrimSpace(parameter(r, "entity"))}
	show(w, "deadlines.html", v, v.read(r.Context(), m))
}

func (v *pendingView) read(ctx context.Context, m *messagePages) error {
	if v.Entity != "" {
		at, err := dlq.ParsePlace(v.Entity)
		if err != nil {
			return badRequest(err)
		}
		v.Entity = at.Entity // companions name the topic
	}
	ctx, leave, err := m.enter(ctx, readTimeout)
	if err != nil {
		return err
	}
	defer leave()
	s := m.Deadlines
	all, err := deadlines.List(ctx, s, deadlines.ListOptions{Entity: v.Entity, Limit: maxUpcoming})
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return errors.New("the monitor queue is too long to be read in the time that a page has; run `overdue deadlines`")
	}
	if err != nil {
		return err
	}
	all.Entities = slices.DeleteFunc(all.Entities, func(e *deadlines.Entity) bool { return strings.EqualFold(e.Entity, m.source.Canary) })
	all.Entities = all.Entities[:min(len(all.Entities), maxRows)]
	v.Listing = all
	return nil
}
