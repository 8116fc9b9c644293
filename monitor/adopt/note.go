// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"overdue/internal/redisstore"
	"overdue/internal/servicebus/link"
	"overdue/monitor/search"
	"overdue/scheduler"
)

// NoteType is the content type of notes. On the wire it names a pass differently.
const NoteType = "application/vnd.overdue.sweep+json"

const notePrefix = "overdue-sweep-"

// maxNoteSize is less than a message of the least tier may have, and room for the 2,000
// subscriptions that a topic may have.
const maxNoteSize = 240 << 10 // bytes

// note is the body of a note.
type note struct {
	Version   int                 `json:"version"` // 1
	Entity    string              `json:"entity"`
	Series    string              `json:"line"` // former releases need one
	Turn      int64               `json:"turn"` // of two notes of an entity the greater one continues
	Positions map[string]position `json:"places"`
	Request   *request            `json:"request,omitempty"` // nil: the entity is adopted
}

// position is how far a queue or subscription has been read, or has companions.
type position struct {
	Next     int64     `json:"next"`              // the first number behind that; a hint
	Enqueued time.Time `json:"enqueued,omitzero"` // what was enqueued until then
}

// isBefore reports whether m comes behind p.
func (p position) isBefore(m *link.Message) bool {
	return m.EnqueuedTime.After(p.Enqueued) || m.EnqueuedTime.Equal(p.Enqueued) && m.SequenceNumber >= p.Next
}

// A request is why an entity that is not adopted needs companions.
type request struct {
	Since time.Time `json:"since"` // by the clock of the broker
	// All: the companions of all messages are lost, those of deadlines from Since on. Otherwise
	// companions are due too late, those of messages that were enqueued since a change from then on.
	All bool `json:"all,omitempty"`
}

// isOver reports whether at the instant now all senders know what has changed. Until then its note
// stays, so that no other worker writes one.
func (r *request) isOver(now time.Time) bool {
	return r != nil && now.After(r.Since.Add(senderLag+search.SettledAge))
}

func parseNote(body []byte) (n note, err error) {
	if len(body) > maxNoteSize {
		return n, fmt.Errorf("adopt: note has %d bytes, the limit is %d", len(body), maxNoteSize)
	}
	if err := json.Unmarshal(body, &n); err != nil {
		return n, fmt.Errorf("adopt: note is not the JSON of %s: %w", NoteType, err)
	}
	switch {
	case n.Version != 1:
		return n, fmt.Errorf("adopt: note has version %d, this program reads version 1", n.Version)
	case n.Turn < 0 || n.Entity == "" || n.Series == "":
		return n, errors.New("adopt: note has no entity or series, or a negative turn")
	}
	return n, nil
}

// prefix is how the message-ids of the notes of a series begin.
func (n note) prefix() string {
	series := strings.ToLower(n.Entity)
	if r := n.Request; r != nil && r.All {
		series += " all"
	} else if r != nil {
		series += " since " + r.Since.UTC().Format(time.RFC3339Nano)
	}
	sum := sha256.Sum256([]byte(series))
	return notePrefix + hex.EncodeToString(sum[:8]) + "-"
}

// write writes a note.
func (a *Adopter) write(ctx context.Context, n note, due time.Time) error {
	n.Version, n.Series = 1, "-"
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

// findNotes returns the prefixes of notes that have a successor. On the monitor queue, the last note
// of a series was written at most the longest interval ago; twice that for a worker that is slow.
func (a *Adopter) findNotes(ctx context.Context, longest time.Duration) (found map[string]bool, err error) {
	found = map[string]bool{}
	note := func(id string) {
		if strings.HasPrefix(id, notePrefix) {
			found[id[:strings.LastIndexByte(id, '-')+1]] = true
		}
	}
	if a.cfg.Notes != nil {
		return found, a.cfg.Notes(ctx, notePrefix, func(it redisstore.Item) { note(it.ID) })
	}
	v := search.View{Links: a.cfg.Links, Path: a.cfg.MonitorQueue, Operations: a.cfg.Operations}
	defer v.Close(ctx)
	return found, v.Between(ctx, a.cfg.Latest().Add(-2*longest), search.Forever, func(m *link.Message) { note(m.MessageID) })
}
