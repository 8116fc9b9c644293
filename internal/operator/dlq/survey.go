// SPDX-License-Identifier: Apache-2.0

package dlq

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/servicebus/link"
)

// A Survey counts the dead letters of a place, and those of them that were chosen.
type Survey struct {
	Entity   string         `json:"entity"`
	Read     int            `json:"lookedAt"`
	Chosen   int            `json:"meant"`
	More     bool           `json:"more,omitempty"` // more dead letters fit than were to be chosen
	Reasons  map[string]int `json:"reasons,omitempty"`
	Others   int            `json:"otherReasons,omitempty"` // dead letters with reasons beyond maxReasons
	Earliest time.Time      `json:"earliest,omitzero"`      // enqueued
	Latest   time.Time      `json:"latest,omitzero"`
	Numbers  map[int64]bool `json:"-"` // of the chosen ones

	groups map[string]*Group
}

// A Group is the dead letters of one reason.
type Group struct {
	Reason   string    `json:"reason"`
	Count    int       `json:"count"`
	Earliest time.Time `json:"earliest"` // enqueued
	Latest   time.Time `json:"latest"`
}

// maxReasons bounds the reasons that are counted apart: senders and consumers make up their own.
const maxReasons = 1000

// Examine reads the dead letters of a place, chooses up to most of those that fit and calls add
// with each. After an error the survey has what was read before.
func Examine(ctx context.Context, links *link.Namespace, place Place, most int, fits func(*Letter) bool, add func(*Letter) error) (*Survey, error) {
	s := &Survey{Entity: place.String(), Reasons: map[string]int{}, Numbers: map[int64]bool{}, groups: map[string]*Group{}}
	var failed error
	err := Walk(ctx, links, place, 0, func(l *Letter) bool {
		s.Read++
		if !fits(l) {
			return true
		}
		if s.Chosen == most {
			s.More = true
			s.Read--
			return false
		}
		s.Chosen++
		s.Numbers[l.Number] = true
		s.count(l)
		failed = add(l)
		return failed == nil
	})
	return s, errors.Join(failed, err)
}

func (s *Survey) count(l *Letter) {
	extend(&s.Earliest, &s.Latest, l.EnqueuedTime)
	g := s.groups[l.Reason]
	if g == nil && len(s.groups) == maxReasons {
		s.Others++
		return
	}
	if g == nil {
		g = &Group{Reason: l.Reason}
		s.groups[l.Reason] = g
	}
	g.Count++
	s.Reasons[l.Reason]++
	extend(&g.Earliest, &g.Latest, l.EnqueuedTime)
}

func extend(earliest, latest *time.Time, at time.Time) {
	if earliest.IsZero() || at.Before(*earliest) {
		*earliest = at
	}
	if at.After(*latest) {
		*latest = at
	}
}

// Groups returns up to n groups, the largest first, and how many dead letters are in no such group.
func (s *Survey) Groups(n int) (groups []*Group, others int) {
	groups = slices.SortedFunc(maps.Values(s.groups), func(a, b *Group) int {
		return cmp.Or(b.Count-a.Count, strings.Compare(a.Reason, b.Reason))
	})
	others = s.Others
	for len(groups) > n {
		last := len(groups) - 1
		others += groups[last].Count
		groups = groups[:last]
	}
	return groups, others
}

// ShortestLock is the shortest lock that Service Bus allows.
const ShortestLock = 5 * time.Second

// Hold is how long a dead letter may be kept, well below its lock duration. 0 stands for a duration
// that is not known.
func Hold(lock time.Duration) time.Duration { return max(lock, ShortestLock) * 2 / 3 }

// JournalFile is the journal in a folder for a namespace, place and target, so that the next run
// finds what the last one has left.
func JournalFile(folder, namespace string, place Place, target string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s", namespace, strings.ToLower(place.String()), strings.ToLower(target)))
	return filepath.Join(folder, "resubmit-"+hex.EncodeToString(sum[:8])+".db")
}

// A Filter chooses dead letters. The zero value chooses all of them. Of the fields that are set,
// every one has to fit.
type Filter struct {
	Reason      *string       // as it stands, whatever the case; nil = any, "" = none was given
	Description string        // a part of it, whatever the case
	OlderThan   time.Duration // since it was enqueued
	YoungerThan time.Duration
	DueBefore   time.Time // see Letter.Due
	DueAfter    time.Time
	MessageIDs  []string
	SessionID   *string
	Numbers     []int64           // sequence numbers
	Properties  map[string]string // application properties, as text
}

// Fits reports whether l matches, at the instant now.
func (f *Filter) Fits(l *Letter, now time.Time) bool {
	switch {
	case f.Reason != nil && !strings.EqualFold(*f.Reason, l.Reason),
		!strings.Contains(strings.ToLower(l.Description), strings.ToLower(f.Description)),
		f.OlderThan > 0 && now.Sub(l.EnqueuedTime) < f.OlderThan,
		f.YoungerThan > 0 && now.Sub(l.EnqueuedTime) > f.YoungerThan,
		!f.DueBefore.IsZero() && (l.Due.IsZero() || !l.Due.Before(f.DueBefore)),
		!f.DueAfter.IsZero() && !l.Due.After(f.DueAfter),
		len(f.MessageIDs) > 0 && !slices.Contains(f.MessageIDs, l.MessageID),
		f.SessionID != nil && (l.SessionID == nil || *l.SessionID != *f.SessionID),
		len(f.Numbers) > 0 && !slices.Contains(f.Numbers, l.Number):
		return false
	}
	for name, want := range f.Properties {
		if v, ok := l.Properties[name]; !ok || Text(v) != want {
			return false
		}
	}
	return true
}

// Text is a property's value as an operator would write it.
func Text(v any) string {
	switch v := v.(type) {
	case amqp.Timestamp:
		return v.Time().Format(time.RFC3339Nano)
	case amqp.Symbol:
		return string(v)
	case amqp.Raw: // cannot be decoded
		return hex.EncodeToString(v)
	}
	return fmt.Sprint(v)
}
