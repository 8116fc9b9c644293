// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"overdue/internal/servicebus/link"
	"overdue/monitor/search"
	"overdue/scheduler"
)

// NoteType is the content type of the note that says how far an entity has been read. There is one
// note for each series of passes. The worker that receives it runs the next pass and writes the
// next note. So several workers read an entity once, and a restart continues where they were. On
// the wire, the content type names a pass differently.
const NoteType = "application/vnd.overdue.sweep+json"

const (
	noteVersion = 1
	maxNoteSize = 240 << 10 // bytes: less than a message of the least tier may have
	notePrefix  = "overdue-sweep-"

	// senderLag is how long senders may go by former settings, see entities.Config.KeepFor. For so
	// long an entity is read every requestInterval.
	senderLag       = 2 * time.Minute
	requestInterval = 10 * time.Second
	// maxRequestTime bounds how long a request is repeated that fails.
	maxRequestTime = time.Hour
	// clockMargin is by how much the clock that says when settings were changed may be ahead of the
	// one that stamps messages.
	clockMargin = 100 * time.Millisecond
)

// note is the body of a note.
type note struct {
	Version   int                 `json:"version"`
	Entity    string              `json:"entity"`
	Series    string              `json:"line"` // former releases need one
	Turn      int64               `json:"turn"` // of two notes of an entity the greater one continues
	Positions map[string]position `json:"places"`
	Request   *request            `json:"request,omitempty"` // nil: the entity is adopted
}

// position is how far a queue or subscription has been read.
type position struct {
	Next     int64     `json:"next"`              // the first number that has not been seen
	Enqueued time.Time `json:"enqueued,omitzero"` // of the last seen message
}

// A request is why an entity is read for a while.
type request struct {
	Since time.Time `json:"since"` // by the clock of the broker
	// All: the companions of all messages are lost, those of deadlines from Since on. Otherwise
	// companions are due too late, those of messages that were enqueued since then and have the
	// default time to live of their entity.
	All bool `json:"all,omitempty"`
}

// isOver reports whether at the instant now all messages can be read that were sent before all
// senders knew what has changed.
func (r *request) isOver(now time.Time) bool {
	return r != nil && now.After(r.Since.Add(senderLag+minAge))
}

// isDone reports whether the pass that began at that instant was the last of r. unfinished: it has
// not read everything.
func (r *request) isDone(began time.Time, unfinished bool) bool {
	return r.isOver(began) && (!unfinished || began.After(r.Since.Add(maxRequestTime)))
}

func parseNote(body []byte) (n note, err error) {
	if len(body) > maxNoteSize {
		return n, fmt.Errorf("adopt: note has %d bytes, the limit is %d", len(body), maxNoteSize)
	}
	if err := json.Unmarshal(body, &n); err != nil {
		return n, fmt.Errorf("adopt: note is not the JSON of %s: %w", NoteType, err)
	}
	switch {
	case n.Version != noteVersion:
		return n, fmt.Errorf("adopt: note has version %d, this program reads version %d", n.Version, noteVersion)
	case n.Turn < 0 || n.Entity == "" || n.Series == "" || len(n.Positions) > maxPaths:
		return n, errors.New("adopt: note has no entity or series, or a field beyond its limit")
	case n.Positions == nil:
		n.Positions = map[string]position{}
	}
	return n, nil
}

// key distinguishes the series of passes.
func (n note) key() string {
	key := strings.ToLower(n.Entity)
	switch {
	case n.Request == nil:
		return key
	case n.Request.All:
		return key + " all"
	}
	return key + " since " + n.Request.Since.UTC().Format(time.RFC3339Nano)
}

// prefix is how the message-ids of the notes of a series begin.
func (n note) prefix() string {
	sum := sha256.Sum256([]byte(n.key()))
	return notePrefix + hex.EncodeToString(sum[:8]) + "-"
}

// write writes a note.
func (a *Adopter) write(ctx context.Context, n note, due time.Time) error {
	n.Version, n.Series = noteVersion, "-"
	body, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("adopt: encode note: %w", err)
	}
	return a.cfg.Scheduler.Keep(ctx, scheduler.Note{
		ID:          n.prefix() + strconv.FormatInt(due.UnixNano(), 36),
		Due:         due,
		ContentType: NoteType,
		Subject:     "sweep",
		Body:        body,
	})
}

// readNotes returns a function that reports whether there is a note with that prefix. The last note
// of a series was written at most an interval ago; twice that for a worker that is slow.
func (a *Adopter) readNotes(ctx context.Context, now scheduler.Instant, longest time.Duration) (func(context.Context, string) (bool, error), error) {
	if a.cfg.HasNote != nil {
		return a.cfg.HasNote, nil
	}
	v := search.View{Links: a.cfg.Links, Path: a.cfg.MonitorQueue, Operations: a.cfg.Operations}
	defer v.Close(ctx)
	from := now.Time.Add(-now.Uncertainty - 2*max(longest, time.Minute))
	if !now.Measured {
		from = time.Time{}
	}
	var ids []string
	err := v.Between(ctx, from, search.Forever, func(m *link.Message) {
		if strings.HasPrefix(m.MessageID, notePrefix) {
			ids = append(ids, m.MessageID)
		}
	})
	return func(_ context.Context, prefix string) (bool, error) {
		return slices.ContainsFunc(ids, func(id string) bool { return strings.HasPrefix(id, prefix) }), nil
	}, err
}
