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

	"overdue/scheduler"
)

// NoteType is the content type of the note that says how far an adopted entity has been read.
// There is one note for each entity. The worker that receives it runs the next adopt pass and
// writes the next note. So several workers read an entity once, and a restart continues where they
// were. On the wire, the content type names a pass differently.
const NoteType = "application/vnd.overdue.sweep+json"

const (
	noteVersion = 1
	maxNoteSize = 240 << 10 // bytes: less than a message of the least tier may have
)

// note is the body of a note.
type note struct {
	Version   int                 `json:"version"`
	Entity    string              `json:"entity"`
	Series    string              `json:"line"` // of notes, from one to the next; of two lines the greater one ends
	Turn      int64               `json:"turn"` // of the line; of two notes with one turn the later one ends
	Positions map[string]position `json:"places"`
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
	case n.Turn < 0 || n.Entity == "" || n.Series == "" || len(n.Series) > 64 || len(n.Positions) > maxPaths:
		return n, errors.New("adopt: note has no entity or series, or a field beyond its limit")
	}
	return n, nil
}

// noteID is the prefix of the message-ids of the notes of an entity.
func noteID(entity string) string {
	sum := sha256.Sum256([]byte(strings.ToLower(entity)))
	return "overdue-sweep-" + hex.EncodeToString(sum[:8]) + "-"
}

// write writes a note.
func (a *Adopter) write(ctx context.Context, n note, due time.Time) error {
	n.Version = noteVersion
	body, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("adopt: encode note: %w", err)
	}
	return a.cfg.Scheduler.Keep(ctx, scheduler.Note{
		ID: noteID(n.Entity) + n.Series[:min(len(n.Series), 16)] + "-" + strconv.FormatInt(due.UnixMilli(), 10), Due: due, ContentType: NoteType, Subject: "sweep", Body: body,
	})
}
