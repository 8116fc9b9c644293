// SPDX-License-Identifier: Apache-2.0

package dlq

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"overdue/internal/servicebus/failure"
	"overdue/internal/servicebus/link"
)

// A Survey counts the dead letters of a place, and those of them that were chosen.
type Survey struct {
	Entity   string         `json:"entity"`
	Read     int            `json:"lookedAt"`
	Chosen   int            `json:"meant"`
	More     bool           `json:"more,omitempty"` // more dead letters fit than were to be chosen
	Reasons  map[string]int `json:"reasons,omitempty"`
	Earliest time.Time      `json:"earliest,omitzero"` // enqueued
	Latest   time.Time      `json:"latest,omitzero"`
	Numbers  map[int64]bool `json:"-"` // of the chosen ones
}

// Examine reads the dead letters of a place, chooses up to most of those that fit and calls add
// with each. After an error the survey has what was read before.
func Examine(ctx context.Context, links *link.Namespace, place Place, most int, fits func(*Letter) bool, add func(*Letter) error) (*Survey, error) {
	s := &Survey{Entity: place.String(), Reasons: map[string]int{}, Numbers: map[int64]bool{}}
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
		s.Reasons[l.Reason]++
		if s.Earliest.IsZero() || l.EnqueuedTime.Before(s.Earliest) {
			s.Earliest = l.EnqueuedTime
		}
		if l.EnqueuedTime.After(s.Latest) {
			s.Latest = l.EnqueuedTime
		}
		failed = add(l)
		return failed == nil
	})
	return s, errors.Join(failed, err)
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

// SendFailure turns an error of a send to an entity into one that says what to do.
func SendFailure(entity string, err error) error {
	switch condition := link.Condition(err); condition {
	case "amqp:link:message-size-exceeded":
		return fmt.Errorf("the message is too large for %s; its tier bounds it, and its own limit if it has one", entity)
	case link.ConditionNotFound:
		return fmt.Errorf("there is no queue or topic %q; create it, or correct the name", entity)
	case "amqp:unauthorized-access":
		return fmt.Errorf("no Send right on %s; see docs/operate/rights.md: %s", entity, failure.Reason(err))
	}
	return fmt.Errorf("send to %s: %s", entity, failure.Reason(err))
}
