// SPDX-License-Identifier: Apache-2.0

package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"overdue/alert"
	"overdue/internal/escape"
	"overdue/internal/notifications"
	"overdue/internal/servicebus/address"
	"overdue/internal/slack"
)

const (
	// Path is where the admin port serves missed deadlines.
	Path = "/history/missed"
	// SlackPath is where the admin port serves the slack of settlements.
	SlackPath = "/history/slack"
	// MinutesPath is where it serves the counts by the minute.
	MinutesPath = "/history/minutes"
	scopeHeader = "Overdue-Scope"
	// MaxShown bounds the missed deadlines of one answer.
	MaxShown = 1000
	// MaxPoints bounds the counts of one answer.
	MaxPoints = 10_000
)

// Missed returns missed deadlines since a time that match, the latest first, up to limit. It has also
// those that are not in the file yet.
func (h *History) Missed(since time.Time, match func(*alert.Event) bool, limit int) (found []notifications.Notification, err error) {
	if h == nil {
		return nil, nil
	}
	known := map[string]int{}
	add := func(n notifications.Notification) {
		at, twice := known[n.Event.ID]
		switch {
		case twice:
			found[at] = merge(n, found[at])
		case n.Event.ID != "" && match(&n.Event):
			known[n.Event.ID] = len(found)
			found = append(found, n)
		}
	}
	h.mu.Lock()
	for _, n := range h.missed {
		if n.Event.Data.Deadline.Unix() >= since.Unix() {
			add(n)
		}
	}
	h.mu.Unlock()
	waiting := len(found)
	err = h.store.each(kindMissed, since, func(_ time.Time, _ string, v []byte) bool {
		add(decode(v))
		return len(found)-waiting < limit
	})
	return latest(found, limit), err
}

// latest sorts notifications by their deadlines, the latest first, and returns up to limit of them.
func latest(found []notifications.Notification, limit int) []notifications.Notification {
	slices.SortStableFunc(found, func(a, b notifications.Notification) int {
		return b.Event.Data.Deadline.Compare(a.Event.Data.Deadline)
	})
	return found[:min(len(found), limit)]
}

// A Point is how often something happened in a minute.
type Point struct {
	Minute time.Time `json:"minute"`
	Kind   string    `json:"kind"`   // sends, deadlines, outstanding or alerts
	Name   string    `json:"name"`   // the entity, or the sink of alerts
	Result string    `json:"result"` // as the metrics say it; of outstanding none
	Count  uint64    `json:"count"`
}

// Minutes returns the counts of the entities and sinks that match since a time, the latest first, up
// to limit. Of outstanding deadlines it has the highest number of the minute.
func (h *History) Minutes(since time.Time, matches func(name string) bool, limit int) (found []Point, err error) {
	found = []Point{}
	err = h.eachCount(since, func(minute time.Time, s series, c slack.Counts) bool {
		if s.kind != kindSlack && matches(s.name) {
			found = append(found, Point{minute, s.kind, s.name, s.result, c[0]})
		}
		return len(found) < limit
	})
	return found, err
}

// settled sums up the settlements of each entity that matches, since a time.
func (h *History) settled(since time.Time, matches func(entity string) bool) (settlements, error) {
	sums := settlements{}
	err := h.eachCount(since, func(_ time.Time, s series, c slack.Counts) bool {
		if s.kind == kindSlack && matches(s.name) {
			sums.add(s.name, c)
		}
		return true
	})
	return sums, err
}

// settlements are those of entities, by their names in lower case.
type settlements map[string]entitySettlements

type entitySettlements struct {
	entity string // as it is spelled
	slack.Counts
}

func (s settlements) add(entity string, c slack.Counts) {
	key := strings.ToLower(entity)
	sum, known := s[key]
	if !known {
		sum = entitySettlements{entity, slack.Counts{}}
	}
	sum.Merge(c)
	sum.entity = min(sum.entity, entity)
	s[key] = sum
}

func (s settlements) summarize() []slack.Summary {
	found := []slack.Summary{}
	for _, sum := range s {
		found = append(found, sum.Summarize(sum.entity))
	}
	slices.SortFunc(found, func(a, b slack.Summary) int { return cmp.Compare(a.Entity, b.Entity) })
	return found
}

// eachCount calls do with what was counted since a time, the latest first, until it has enough.
func (h *History) eachCount(since time.Time, do func(minute time.Time, s series, c slack.Counts) (more bool)) error {
	if h == nil {
		return nil
	}
	return h.store.each(kindCount, since, func(minute time.Time, rest string, v []byte) bool {
		parts := strings.Split(rest, "\x00")
		c, err := slack.Parse(v)
		if err != nil || len(parts) != 3 {
			return true // as in Missed
		}
		return do(minute, series{parts[0], parts[1], parts[2]}, c)
	})
}

// Notifications returns missed deadlines of messages with that name, see [address.Names], or of all
// messages for "", and the sinks that took them. Those of other processes have no sinks.
func (h *History) Notifications(ctx context.Context, name string, limit int) []notifications.Notification {
	if name == "" { // as at a start, which does not wait for Redis
		found, _ := h.Missed(time.Time{}, func(*alert.Event) bool { return true }, limit) // what cannot be read is left out
		return found
	}
	found, _, _ := h.FleetMissed(ctx, time.Time{}, func(e *alert.Event) bool {
		return address.Names(name, e.Data.MessageID, e.Data.SequenceNumber)
	}, limit)
	return found
}

// ServeHTTP answers with missed deadlines as JSON, or with what SlackPath or MinutesPath says. The
// parameter since, a time, restricts them, and so does entity.
func (h *History) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h == nil {
		http.Error(w, "this process keeps no history: set history.directory, and not history.enabled: false", http.StatusServiceUnavailable)
		return
	}
	q := r.URL.Query()
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
	var found any
	var scope string
	var err error
	switch r.URL.Path {
	case SlackPath:
		found, scope, err = h.Slack(r.Context(), since, time.Now(), matches)
	case MinutesPath:
		scope = ScopeProcess
		found, err = h.Minutes(since, matches, MaxPoints)
	default:
		var missed []notifications.Notification
		missed, scope, err = h.FleetMissed(r.Context(), since, func(e *alert.Event) bool { return matches(e.Data.Entity) }, MaxShown)
		events := make([]alert.Event, len(missed))
		for i := range missed {
			events[i] = missed[i].Event
		}
		found = events
	}
	var gaps []notifications.Gap
	if err == nil {
		gaps, err = h.Gaps(since)
	}
	if h.cfg.NoMonitor && r.URL.Path == Path && scope != ScopeFleet {
		gaps = append(gaps, notifications.Gap{To: time.Now(), Reason: reasonProxy})
	}
	if err != nil {
		http.Error(w, escape.Text(err.Error()), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set(scopeHeader, scope)
	notifications.WriteGaps(w.Header(), gaps)
	// Only the caller loses something if the answer cannot be written.
	_ = escape.WriteJSON(w, found)
}

// missing returns an error for an entity that neither the history nor the namespace has.
func (h *History) missing(ctx context.Context, entity string, matches func(string) bool) error {
	if entity == "" || h.cfg.Missing == nil {
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
	Gaps  []notifications.Gap // in the span that was asked for
}

// Fetch asks the process with the admin port addr for deadlines missed since a time, of one entity
// or for "" of all.
func Fetch(ctx context.Context, addr, entity string, since time.Time) (a Answer[Fetched], err error) {
	return fetch[Fetched](ctx, addr, Path, entity, since)
}

// FetchSlack asks the process with the admin port addr for the slack of the settlements since a
// time, of one entity or for "" of all.
func FetchSlack(ctx context.Context, addr, entity string, since time.Time) (a Answer[slack.Summary], err error) {
	return fetch[slack.Summary](ctx, addr, SlackPath, entity, since)
}

// FetchMinutes asks the process with the admin port addr for its counts by the minute since a time,
// of one entity or sink or for "" of all.
func FetchMinutes(ctx context.Context, addr, name string, since time.Time) (a Answer[Point], err error) {
	return fetch[Point](ctx, addr, MinutesPath, name, since)
}

func fetch[T any](ctx context.Context, addr, path, entity string, since time.Time) (a Answer[T], err error) {
	q := url.Values{"since": {since.UTC().Format(time.RFC3339)}, "entity": {entity}}
	a.Found = []T{}
	header, gaps, err := notifications.Ask(ctx, addr, path, q, &a.Found)
	a.Scope, a.Gaps = header.Get(scopeHeader), gaps
	var status *notifications.StatusError
	switch {
	case !errors.As(err, &status):
		return a, err
	case status.Code == http.StatusServiceUnavailable:
		return a, fmt.Errorf("history: the process at %s keeps none: set history.enabled to true, and give it a history.directory that it can write", addr)
	case status.Code == http.StatusNotFound:
		return a, errors.New(status.Reason)
	}
	return a, err
}
