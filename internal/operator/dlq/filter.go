// SPDX-License-Identifier: Apache-2.0

package dlq

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"overdue/internal/amqp"
)

// A Filter chooses dead letters. The zero value chooses all of them. Of the fields that are set,
// every one has to fit.
type Filter struct {
	Reason      string        // as it stands, whatever the case; "" = any
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
	case f.Reason != "" && !strings.EqualFold(f.Reason, l.Reason),
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
