// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"overdue/alert"
	"overdue/internal/escape"
	"overdue/internal/httpclient"
	"overdue/internal/redisstore"
	"overdue/internal/servicebus/address"
)

// Paths of the admin port.
const (
	NotificationsPath = "/notifications"
	MissedPath        = "/history/missed"
	SlackPath         = "/history/slack"
	MinutesPath       = "/history/minutes"
	UnknownPath       = "/history/unknown"
	FleetPath         = "/fleet"
)

const (
	scopeHeader = "Overdue-Scope"
	gapsHeader  = "Overdue-Gaps"

	// fetchTimeout bounds one request to the admin port, and explainTimeout one whose answer an
	// explanation can do without.
	fetchTimeout   = 10 * time.Second
	explainTimeout = 3 * time.Second
	// maxAnswer bounds what is read of one answer, and maxReason of a refusal.
	maxAnswer = 16 << 20
	maxReason = 1 << 10
)

// ServeHTTP answers with what its path says as JSON. The latest notifications can be restricted to
// one message by message-id, whose value is the message-id, or # and the sequence number. Records of
// the file can be restricted by since, a time, and by entity.
func (h *History) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if r.URL.Path == NotificationsPath {
		answer(w, h.Notifications(r.Context(), q.Get("message-id")), "", h.missedGaps(time.Time{}, ""))
		return
	}
	if !h.HasFile() && r.URL.Path != UnknownPath {
		http.Error(w, "this process keeps no history: set history.directory, and not history.enabled: false", http.StatusServiceUnavailable)
		return
	}
	since := time.Time{}
	if text := q.Get("since"); text != "" {
		var err error
		if since, err = time.Parse(time.RFC3339, text); err != nil {
			http.Error(w, "since is not a time such as 2026-05-04T03:02:01Z", http.StatusBadRequest)
			return
		}
	}
	entity := q.Get("entity")
	below := strings.ToLower(address.SubscriptionPath(entity, "")) // of a topic: its subscriptions
	matches := func(name string) bool {
		return entity == "" || strings.EqualFold(name, entity) || strings.HasPrefix(strings.ToLower(name), below)
	}
	if err := h.missing(r.Context(), entity, matches); err != nil {
		http.Error(w, escape.Text(err.Error()), http.StatusNotFound)
		return
	}
	gaps := h.Gaps(since)
	var found any
	scope := ScopeProcess
	var err error
	switch r.URL.Path {
	case SlackPath:
		found, err = h.Slack(since, matches)
	case MinutesPath:
		found, err = h.Minutes(since, matches, MaxPoints)
	case UnknownPath:
		var unknown []Unknown
		unknown, scope = h.Unknown(r.Context(), MaxUnknown)
		found, gaps = slices.DeleteFunc(unknown, func(u Unknown) bool { return u.Judged.Before(since) || !matches(u.Entity) }), h.missedGaps(since, scope)
	default:
		var missed []Notification
		missed, scope, err = h.Missed(r.Context(), since, func(e *alert.Event) bool { return matches(e.Data.Entity) }, MaxShown)
		events := make([]alert.Event, len(missed))
		for i := range missed {
			events[i] = missed[i].Event
		}
		found, gaps = events, h.missedGaps(since, scope)
	}
	if err != nil {
		http.Error(w, escape.Text(err.Error()), http.StatusInternalServerError)
		return
	}
	answer(w, found, scope, gaps)
}

func answer(w http.ResponseWriter, found any, scope string, gaps []Gap) {
	w.Header().Set("Content-Type", "application/json")
	if scope != "" {
		w.Header().Set(scopeHeader, scope)
	}
	if text, err := json.Marshal(gaps); err == nil && len(gaps) > 0 { // times and texts have a JSON form
		w.Header().Set(gapsHeader, string(text))
	}
	// Only the caller loses something if the answer cannot be written.
	_ = escape.WriteJSON(w, found)
}

// missing returns an error for an entity that neither the history nor the namespace has.
func (h *History) missing(ctx context.Context, entity string, matches func(string) bool) error {
	if entity == "" || !h.HasFile() || h.cfg.Missing == nil {
		return nil
	}
	var known []string
	has := false
	_, err := h.Minutes(time.Time{}, func(name string) bool {
		if !slices.Contains(known, name) {
			known = append(known, name)
		}
		has = has || matches(name)
		return has
	}, 1)
	if has || err != nil {
		return nil // a history that cannot be read is an error of its own
	}
	return h.cfg.Missing(ctx, entity, known)
}

// A Fetched event is a missed deadline of another process.
type Fetched struct {
	ID   string          `json:"id"`
	Type string          `json:"type"`
	Data alert.EventData `json:"data"`
}

// An Answer is what a process has in its history.
type Answer[T any] struct {
	Found []T
	Scope string
	Gaps  []Gap // in the span that was asked for
}

// FetchNotifications asks the process with the admin port addr for the notifications of messages
// with that name, see [address.Names].
func FetchNotifications(ctx context.Context, addr, name string) (a Answer[Notification], err error) {
	ctx, cancel := context.WithTimeout(ctx, explainTimeout)
	defer cancel()
	return ask[Notification](ctx, addr, NotificationsPath, url.Values{"message-id": {name}})
}

// A Fleet is what a process answers at FleetPath.
type Fleet struct {
	Scope string `json:"scope"`
	Error string `json:"error,omitempty"` // why Redis does not answer
	redisstore.Fleet
}

// FetchFleet asks the process with the admin port addr for the processes that it knows.
func FetchFleet(ctx context.Context, addr string) (f Fleet, err error) {
	_, err = get(ctx, addr, FleetPath, nil, &f)
	return f, err
}

// Fetch asks the process with the admin port addr for what it has at a path since a time. The entity
// "" means all. Answers are [Fetched] at MissedPath, [slack.Summary] at SlackPath, [Point] at
// MinutesPath, and [Unknown] at UnknownPath.
func Fetch[T any](ctx context.Context, addr, path, entity string, since time.Time) (a Answer[T], err error) {
	return ask[T](ctx, addr, path, url.Values{"since": {since.UTC().Format(time.RFC3339)}, "entity": {entity}})
}

func ask[T any](ctx context.Context, addr, path string, q url.Values) (a Answer[T], err error) {
	a.Found = []T{}
	header, err := get(ctx, addr, path, q, &a.Found)
	if err != nil {
		return a, err
	}
	a.Scope = header.Get(scopeHeader)
	if text := header.Get(gapsHeader); text != "" {
		err = json.Unmarshal([]byte(text), &a.Gaps)
	}
	if err != nil {
		return a, fmt.Errorf("read the gaps of %s: %w", path, err)
	}
	return a, nil
}

// get reads an answer of the admin port.
func get(ctx context.Context, addr, path string, q url.Values, into any) (http.Header, error) {
	resp, err := httpclient.GetAdmin(ctx, addr, path+"?"+q.Encode(), fetchTimeout)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // only read
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusServiceUnavailable:
		return nil, fmt.Errorf("history: the process at %s keeps none: set history.enabled to true, and give it a history.directory that it can write", addr)
	case http.StatusNotFound:
		reason, readErr := io.ReadAll(io.LimitReader(resp.Body, maxReason))
		return nil, errors.Join(errors.New(strings.TrimSpace(string(reason))), readErr)
	default:
		return nil, fmt.Errorf("%s answers %s at %s", addr, resp.Status, path)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(into); err != nil {
		return nil, fmt.Errorf("%s does not answer as Overdue does at %s: %w", addr, path, err)
	}
	return resp.Header, nil
}
