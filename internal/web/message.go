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

// explainTimeout bounds the reading of a queue, its dead letters and the monitor queue.
const explainTimeout = 20 * time.Second

// A messageView is the timeline of one message.
type messageView struct {
	page
	Entity, MessageID string
	Verdict, Note     string
	Timeline          []timelineRow
	Letters           string // link to the dead letters of the place
}

type timelineRow struct{ Time, Text, Where string }

// messageLink is the page of a message. name is that of [address.MessageName].
func messageLink(place dlq.Place, name string) string {
	return Path + "message?" + values("entity", place.String(), "id", name)
}

// message shows what `overdue explain` says of a message.
func (m *messagePages) message(w http.ResponseWriter, r *http.Request) {
	v := &messageView{page: m.page("message", "Timeline of a message"), Entity: strings.TrimSpace(parameter(r, "entity")), MessageID: parameter(r, "id")}
	var err error
	if v.Entity+v.MessageID != "" {
		err = v.explain(r.Context(), m)
	}
	show(w, "message.html", v, err)
}

var errSlow = errors.New("the queues are too long to be read in the time that a page has; run `overdue explain`")

func (v *messageView) explain(ctx context.Context, m *messagePages) error {
	if v.Entity == "" || v.MessageID == "" {
		return refusal{http.StatusBadRequest, "both an entity and a message ID are needed"}
	}
	place, err := dlq.ParsePlace(v.Entity)
	if err != nil {
		return badRequest(err)
	}
	v.Letters = lettersLink(place)
	ctx, leave, err := m.enter(ctx, explainTimeout)
	if err != nil {
		return err
	}
	defer leave()
	x, err := deadlines.Explain(ctx, m.Deadlines, deadlines.ExplainOptions{Place: place, MessageID: v.MessageID, History: m.source.History})
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return errSlow
	}
	if err != nil {
		return err
	}
	v.Title = "Timeline of " + v.MessageID
	v.Verdict, v.Note = x.Verdict, x.Note
	if m.source.History == nil {
		v.Note = "Notifications are unknown: this process has no monitor."
	}
	for _, e := range x.Timeline {
		if len(v.Timeline) == maxRows {
			v.Note = "The timeline is longer than this page. `overdue explain` shows all of it."
			break
		}
		v.Timeline = append(v.Timeline, timelineRow{stamp(e.Time), e.Text, e.Where})
	}
	return nil
}
