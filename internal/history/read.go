// SPDX-License-Identifier: Apache-2.0

package history

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"overdue/alert"
	"overdue/internal/escape"
	"overdue/internal/httpclient"
)

const (
	// Path is where the admin port serves missed deadlines.
	Path = "/history/missed"
	// MaxShown is how many missed deadlines, or points, one answer contains at most.
	MaxShown = 1000

	fetchTimeout = 10 * time.Second
	maxAnswer    = 16 << 20
)

// Missed returns missed deadlines since a time that match, the latest first, up to limit.
func (h *History) Missed(since time.Time, match func(*alert.Event) bool, limit int) (found []alert.Event, err error) {
	found = []alert.Event{}
	err = h.each(missedBucket, since, func(_, v []byte) (bool, error) {
		var e alert.Event
		if err := json.Unmarshal(v, &e); err != nil {
			return false, err
		}
		if match(&e) {
			found = append(found, e)
		}
		return len(found) < limit, nil
	})
	return found, err
}

// A Point is how often something happened in a minute.
type Point struct {
	Minute time.Time `json:"minute"`
	Kind   string    `json:"kind"`   // sends, deadlines or alerts
	Name   string    `json:"name"`   // the entity, or the sink of alerts
	Result string    `json:"result"` // as the metrics say it
	Count  uint64    `json:"count"`
}

// Minutes returns the counts of an entity or a sink since a time, the latest first, up to limit.
func (h *History) Minutes(since time.Time, name string, limit int) (found []Point, err error) {
	found = []Point{}
	err = h.each(minutesBucket, since, func(k, v []byte) (bool, error) {
		parts := strings.Split(string(k[timeLength:]), "\x00")
		if len(parts) != 3 || len(v) != timeLength {
			return false, errDamaged
		}
		if parts[1] == name {
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
	err := guard(func() error {
		return h.file.db.View(func(tx *bbolt.Tx) error {
			c := tx.Bucket(bucket).Cursor()
			for k, v := c.Last(); k != nil && bytes.Compare(k, first) >= 0; k, v = c.Prev() {
				if more, err := do(k, v); err != nil || !more {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		return fmt.Errorf("history: read %s: %w", h.file.db.Path(), err)
	}
	return nil
}

// ServeHTTP answers with missed deadlines as JSON. The parameter since, a time, restricts them, and
// so does entity.
func (h *History) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h == nil {
		http.Error(w, "this process keeps no history: set history.directory", http.StatusServiceUnavailable)
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
	found, err := h.Missed(since, func(e *alert.Event) bool { return entity == "" || strings.EqualFold(e.Data.Entity, entity) }, MaxShown)
	if err != nil {
		http.Error(w, escape.Text(err.Error()), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// Only the caller loses something if the answer cannot be written.
	_ = escape.WriteJSON(w, found)
}

// A Fetched event is a missed deadline of another process.
type Fetched struct {
	ID   string          `json:"id"`
	Type string          `json:"type"`
	Data alert.EventData `json:"data"`
}

// Fetch asks the process with the admin port addr for deadlines missed since a time, of one entity
// or for "" of all.
func Fetch(ctx context.Context, addr, entity string, since time.Time) ([]Fetched, error) {
	// The port is on this machine: a proxy from the environment could not reach it.
	client := httpclient.New(&http.Transport{DisableKeepAlives: true}, fetchTimeout)
	target := "http://" + addr + Path + "?" + url.Values{"since": {since.UTC().Format(time.RFC3339)}, "entity": {entity}}.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("history: is Overdue running? %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // only read
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusServiceUnavailable:
		return nil, fmt.Errorf("history: the process at %s keeps none: set history.directory", addr)
	default:
		return nil, fmt.Errorf("history: http://%s%s answered %s", addr, Path, resp.Status)
	}
	fetched := []Fetched{}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&fetched); err != nil {
		return nil, fmt.Errorf("history: read the answer of http://%s%s: %w", addr, Path, err)
	}
	return fetched, nil
}
