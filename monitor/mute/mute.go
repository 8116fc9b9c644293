// SPDX-License-Identifier: Apache-2.0

// Package mute keeps the alerts of a queue from the sinks for a time, while its messages are expired
// as ever. All processes share a mute: it is a note on the first monitor queue, or in the companion
// store, that becomes due when the mute is over. So it ends by itself.
//
//	Set ─▶ note, scheduled for the end ─┬─ Look ─▶ muted, in each process
//	                                    └─ due ──▶ a monitor completes it
package mute

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"overdue/internal/servicebus/address"
)

// NoteType is the content type of notes about mutes.
const NoteType = "application/vnd.overdue.mute+json"

// notePrefix is how the message-ids of the notes begin: a peek shows those without the bodies.
const notePrefix = "overdue-mute-"

const wireVersion = 1

// Bounds of a mute. Anybody who may send to the monitor queue can write one.
const (
	MaxFor    = 30 * 24 * time.Hour
	MaxText   = 500 // characters of By and of Reason
	maxEntity = address.MaxName + len("/Subscriptions/") + address.MaxShortName
	maxNotes  = 1000 // are read
)

// A Mute keeps events about an entity from the sinks. Times are by the broker's clock. Of two mutes
// of one entity the one that was stated last counts. One that is over from the start ends the
// others.
type Mute struct {
	Entity string    `json:"entity"` // a queue, a topic with its subscriptions, or the path of one
	Since  time.Time `json:"since"`  // when it was stated
	Until  time.Time `json:"until"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

type wireMute struct {
	Version int `json:"version"`
	Mute
}

func (m *Mute) check() error {
	switch n := utf8.RuneCountInString(m.Entity); {
	case n == 0 || n > maxEntity:
		return fmt.Errorf("mute: entity has %d characters, want 1 to %d", n, maxEntity)
	case utf8.RuneCountInString(m.By) > MaxText, utf8.RuneCountInString(m.Reason) > MaxText:
		return fmt.Errorf("mute: the reason, or the name of a person, has more than %d characters", MaxText)
	case m.Since.IsZero() || m.Until.Before(m.Since) || m.Until.Sub(m.Since) > MaxFor:
		return fmt.Errorf("mute: it takes %v, want at most %v", m.Until.Sub(m.Since), MaxFor)
	}
	return nil
}

func (m *Mute) marshal() ([]byte, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	return json.Marshal(wireMute{wireVersion, *m})
}

// maxBody is more than the longest texts take, with each character escaped.
const maxBody = 16 << 10

func parse(body []byte) (Mute, error) {
	var w wireMute
	if len(body) > maxBody {
		return w.Mute, fmt.Errorf("mute: note of %d bytes, at most %d are read", len(body), maxBody)
	}
	if err := json.Unmarshal(body, &w); err != nil {
		return w.Mute, fmt.Errorf("mute: note is not the JSON of %s: %w", NoteType, err)
	}
	if w.Version != wireVersion {
		return w.Mute, fmt.Errorf("mute: note has version %d, this program reads version %d", w.Version, wireVersion)
	}
	w.Since, w.Until = w.Since.UTC(), w.Until.UTC()
	return w.Mute, w.check()
}

// Covers reports whether m is about a path: that of its entity, or of a subscription of its topic.
func (m *Mute) Covers(path string) bool {
	rest, ok := strings.CutPrefix(strings.ToLower(path), strings.ToLower(m.Entity))
	return ok && (rest == "" || strings.HasPrefix(rest, "/subscriptions/"))
}

// ErrNotMuted says that there is nothing to end.
var ErrNotMuted = errors.New("it is not muted")
