// SPDX-License-Identifier: Apache-2.0

package history

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"overdue/alert"
	"overdue/internal/boltcheck"
	"overdue/internal/escape"
	"overdue/internal/httpclient"
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
	// MaxShown is how many missed deadlines one answer contains at most, and MaxPoints how many counts.
	MaxShown  = 1000
	MaxPoints = 10_000

	fetchTimeout = 10 * time.Second
	maxAnswer    = 16 << 20
	maxReason    = 1 << 10 // of a refusal
)

// Missed returns missed deadlines since a time that match, the latest first, up to limit. It has also
// those that are not in the file yet.
func (h *History) Missed(since time.Time, match func(*alert.Event) bool, limit int) (found []alert.Event, err error) {
	found = h.waiting(since, match)
	known := map[string]bool{}
	for i := range found {
		known[found[i].ID] = true
	}
	wait := len(found)
	err = h.each(missedBucket, since, func(_, v []byte) (bool, error) {
		var e alert.Event
		// Bytes on a disk go bad: one record must not hide the others.
		if json.Unmarshal(v, &e) == nil && !known[e.ID] && match(&e) {
			found = append(found, e)
		}
		return len(found)-wait < limit, nil
	})
	if wait > 0 {
		slices.SortStableFunc(found, func(a, b alert.Event) int { return b.Data.Deadline.Compare(a.Data.Deadline) })
	}
	return found[:min(len(found), limit)], err
}

// waiting returns the events that match and wait to be written, each once.
func (h *History) waiting(since time.Time, match func(*alert.Event) bool) []alert.Event {
	found := []alert.Event{}
	if h == nil {
		return found
	}
	known := map[string]bool{}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, list := range [][]alert.Event{h.writing, h.pending} {
		for i := range list {
			if e := &list[i]; !known[e.ID] && e.Data.Deadline.Unix() >= since.Unix() && match(e) {
				known[e.ID] = true
				found = append(found, *e)
			}
		}
	}
	return found
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
	err = h.each(minutesBucket, since, func(k, v []byte) (bool, error) {
		parts := strings.Split(string(k[timeLength:]), "\x00")
		if len(parts) == 3 && len(v) == timeLength && matches(parts[1]) {
			minute := time.Unix(int64(binary.BigEndian.Uint64(k)), 0).UTC()
			found = append(found, Point{minute, parts[0], parts[1], parts[2], binary.BigEndian.Uint64(v)})
		}
		return len(found) < limit, nil
	})
	return found, err
}

// each calls do with the entries of a bucket, the latest first, until it has enough.
func (h *History) each(bucket []byte, since time.Time, do func(k, v []byte) (more bool, err error)) error {
	if h == nil {
		return nil
	}
	first := keyOf(since.Unix(), "")
	return h.view(func(tx *bbolt.Tx) error {
		c := tx.Bucket(bucket).Cursor()
		for k, v := c.Last(); k != nil && bytes.Compare(k, first) >= 0; k, v = c.Prev() {
			if more, err := do(k, v); err != nil || !more {
				return err
			}
		}
		return nil
	})
}

// view reads the file.
func (h *History) view(read func(*bbolt.Tx) error) error {
	if err := boltcheck.Guard(func() error { return h.file.db.View(read) }); err != nil {
		return fmt.Errorf("history: read %s: %w", h.file.db.Path(), err)
	}
	return nil
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
		found, scope, err = h.FleetSlack(r.Context(), since, time.Now(), matches)
	case MinutesPath:
		scope = ScopeProcess
		found, err = h.Minutes(since, matches, MaxPoints)
	default:
		found, scope, err = h.FleetMissed(r.Context(), since, func(e *alert.Event) bool { return matches(e.Data.Entity) }, MaxShown)
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
	// The port is on this machine: a proxy from the environment could not reach it.
	client := httpclient.New(&http.Transport{DisableKeepAlives: true}, fetchTimeout)
	target := "http://" + addr + path + "?" + url.Values{"since": {since.UTC().Format(time.RFC3339)}, "entity": {entity}}.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return a, fmt.Errorf("history: %w", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return a, fmt.Errorf("history: is Overdue running? %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // only read
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusServiceUnavailable:
		return a, fmt.Errorf("history: the process at %s keeps none: set history.enabled to true, and give it a history.directory that it can write", addr)
	case http.StatusNotFound:
		text, err := io.ReadAll(io.LimitReader(resp.Body, maxReason))
		return a, errors.Join(errors.New(strings.TrimSpace(string(text))), err)
	default:
		return a, fmt.Errorf("history: http://%s%s answered %s", addr, path, resp.Status)
	}
	a.Found, a.Scope = []T{}, resp.Header.Get(scopeHeader)
	a.Gaps, err = notifications.ReadGaps(resp.Header)
	if err == nil {
		err = json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&a.Found)
	}
	if err != nil {
		return a, fmt.Errorf("history: read the answer of http://%s%s: %w", addr, path, err)
	}
	return a, nil
}
