// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"overdue/internal/servicebus/address"
	"overdue/internal/traceparent"
	"overdue/scheduler/index"
)

// contentType is the content type of a companion on the monitor queue. Its body is
// JSON; the field "version" says whether a reader understands it.
const contentType = "application/vnd.overdue.companion+json"

// wireVersion is what is written. It is raised when a reader of the old form would misjudge the new
// one; earlier ones are read for ever. Fields that a reader may ignore are added without raising it.
const wireVersion = 3

// Bounds of a companion. The monitor queue can be written by anybody who has the
// right to send, so a companion is input from outside.
const (
	maxBody   = 256 << 10
	maxEntity = address.MaxName + len("/Subscriptions/") + address.MaxShortName // of the path of a subscription, in characters
	maxWithin = 100 * 365 * 24 * time.Hour
	maxWindow = time.Minute // of a slot or a span: the monitor reads what was enqueued in as long a time
)

type wireCompanion struct {
	Version    int             `json:"version"`
	Kind       string          `json:"kind"`
	Entity     string          `json:"entity"`
	Attempt    int             `json:"attempt,omitempty"`
	SlotEnd    time.Time       `json:"slotEnd,omitzero"`
	SlotMs     int64           `json:"slotMs,omitempty"`
	LivesMs    []int64         `json:"livesMs,omitempty"`
	SpansMs    [][2]int64      `json:"spansMs,omitempty"`
	DefaultsMs []int64         `json:"defaultsMs,omitempty"`
	References []wireReference `json:"references,omitempty"`
}

// A wireReference is a Reference whose durations are milliseconds.
type wireReference struct {
	*Reference
	WithinMs   int64 `json:"withinMs,omitempty"`
	CompleteMs int64 `json:"completeWithinMs,omitempty"`
	WarnedMs   int64 `json:"warnedMs,omitempty"`
}

// ErrEncode says that a companion has no wire form, so that no monitor queue ever takes it.
var ErrEncode = errors.New("it cannot be encoded")

// IsCompanion reports whether what the monitor queue or the companion store has is a companion. The
// probes that measure the clock of the queue have the content type of companions.
func IsCompanion(ofType, subject string) bool {
	return ofType == contentType && subject != probeSubject
}

// Marshal is the wire form of c and the message-id that is derived from it, so that a monitor queue
// with duplicate detection absorbs a transfer that was retried.
func (c *Companion) Marshal() (body []byte, messageID string, err error) {
	if body, err = json.Marshal(c.wire()); err != nil {
		return nil, "", fmt.Errorf("scheduler: companion for %s: %w: %w", c.Entity, ErrEncode, err)
	}
	// The due time is part of the identity: a companion that is written again for a
	// later look must not be taken for its own duplicate.
	return body, deriveID(body, c.Due.UnixMilli()).String(), nil
}

func deriveID(body []byte, due int64) index.ID {
	sum := sha256.New()
	sum.Write(body)
	sum.Write(strconv.AppendInt(nil, due, 10))
	return index.ID(sum.Sum(nil)[:16])
}

// wire is c as it is written.
func (c *Companion) wire() *wireCompanion {
	w := &wireCompanion{
		Version:    wireVersion,
		Kind:       c.kind(),
		Entity:     c.Entity,
		Attempt:    c.Attempt,
		SlotEnd:    c.SlotEnd,
		LivesMs:    milliseconds(c.Lives),
		DefaultsMs: milliseconds(c.Defaults),
		References: make([]wireReference, len(c.References)),
	}
	if c.IsSlot() {
		w.SlotMs = c.length().Milliseconds()
	}
	for _, span := range c.Spans {
		w.SpansMs = append(w.SpansMs, [2]int64{span.Shortest.Milliseconds(), span.Longest.Milliseconds()})
	}
	for i := range c.References {
		r := &c.References[i]
		w.References[i] = wireReference{
			Reference:  r,
			WithinMs:   r.Within.Milliseconds(),
			CompleteMs: r.CompleteWithin.Milliseconds(),
			WarnedMs:   r.Warned.Milliseconds(),
		}
	}
	return w
}

func (c *Companion) kind() string {
	if c.IsSlot() {
		return kindSlot
	}
	return kindEach
}

func milliseconds(lives []time.Duration) []int64 {
	all := make([]int64, len(lives))
	for i, life := range lives {
		all[i] = life.Milliseconds()
	}
	return all
}

// ParseCompanion reads the wire form. Due is not part of it: it is the companion's own scheduled
// enqueue time. Every error means that the body can never be read, by this version at least. Its
// text is a sentence for an operator who finds the companion in the dead-letter queue.
func ParseCompanion(body []byte) (Companion, error) {
	if len(body) > maxBody {
		return Companion{}, fmt.Errorf("scheduler: companion of %d bytes, at most %d are read", len(body), maxBody)
	}
	var w wireCompanion
	if err := json.Unmarshal(body, &w); err != nil {
		return Companion{}, fmt.Errorf("scheduler: companion is not the JSON of %s: %w", contentType, err)
	}
	c, err := w.companion()
	if err != nil {
		return Companion{}, fmt.Errorf("scheduler: companion %w", err)
	}
	return c, nil
}

func (w *wireCompanion) companion() (c Companion, err error) {
	c = Companion{Entity: w.Entity, Attempt: w.Attempt}
	lives := len(w.LivesMs) + len(w.SpansMs)
	switch n := utf8.RuneCountInString(w.Entity); {
	case w.Version < 1 || w.Version > wireVersion:
		return c, fmt.Errorf("version %d, this program reads versions 1 to %d", w.Version, wireVersion)
	case n == 0 || n > maxEntity:
		return c, fmt.Errorf("entity has %d characters, want 1 to %d", n, maxEntity)
	case w.Attempt < 0:
		return c, fmt.Errorf("attempt %d is negative", w.Attempt)
	case len(w.References) > groupSize:
		return c, fmt.Errorf("names %d messages, at most %d are read", len(w.References), groupSize)
	case lives > groupSize || len(w.DefaultsMs) > groupSize:
		return c, fmt.Errorf("stands for %d times to live, at most %d are read", lives, groupSize)
	case w.Kind == kindEach && len(w.References) == 0:
		return c, errors.New("of kind each names no message")
	case w.Kind == kindSlot && len(w.References) > 0:
		return c, errors.New("of kind slot names messages")
	case w.Kind == kindSlot && (w.SlotEnd.IsZero() || lives == 0):
		return c, errors.New("of kind slot does not say when the slot ends, or for which times to live it stands")
	case w.Kind == kindSlot:
		err = w.readSlot(&c)
		return c, err
	case w.Kind != kindEach:
		return c, fmt.Errorf("kind %q, want %q or %q", w.Kind, kindEach, kindSlot)
	}
	c.References = make([]Reference, len(w.References))
	for i := range w.References {
		if c.References[i], err = w.References[i].reference(); err != nil {
			return c, fmt.Errorf("reference %d: %w", i, err)
		}
	}
	return c, nil
}

// A durationReader reads durations of milliseconds, and keeps its first error.
type durationReader struct{ err error }

func (d *durationReader) read(field string, ms, least int64, most time.Duration) time.Duration {
	if d.err == nil && (ms < least || ms > most.Milliseconds()) {
		d.err = fmt.Errorf("%s is %d, want %d to %d", field, ms, least, most.Milliseconds())
	}
	return time.Duration(ms) * time.Millisecond
}

// readSlot reads what only the companion of a slot has.
func (w *wireCompanion) readSlot(c *Companion) error {
	var d durationReader
	c.SlotEnd = w.SlotEnd.UTC()
	c.SlotLength = d.read("slotMs", cmp.Or(w.SlotMs, shortSlot.Milliseconds()), 1, maxWindow)
	for _, ms := range w.LivesMs {
		c.Lives = append(c.Lives, d.read("a time to live of livesMs", ms, 1, maxWithin))
	}
	for _, ms := range w.SpansMs {
		shortest := d.read("the begin of spansMs", ms[0], 1, maxWithin)
		longest := d.read("the end of spansMs", ms[1], ms[0], min(shortest+maxWindow, maxWithin))
		c.Spans = append(c.Spans, span{shortest, longest})
	}
	for _, ms := range w.DefaultsMs {
		if !slices.Contains(w.LivesMs, ms) {
			return fmt.Errorf("of kind slot has a default time to live of %d ms, which is none of those that it stands for", ms)
		}
		c.Defaults = append(c.Defaults, time.Duration(ms)*time.Millisecond)
	}
	return d.err
}

func (w *wireReference) reference() (r Reference, err error) {
	if w.Reference != nil { // it has another field than its durations
		r = *w.Reference
	}
	r.Sent, r.From, r.Until, r.Deadline = r.Sent.UTC(), r.From.UTC(), r.Until.UTC(), r.Deadline.UTC()
	r.Traceparent = traceparent.Valid(r.Traceparent) // a context that cannot be read costs no deadline
	if r.Missed != nil {
		r.Missed.Traceparent = traceparent.Valid(r.Missed.Traceparent)
	}
	var d durationReader
	r.Within = d.read("withinMs", w.WithinMs, 0, maxWithin)
	r.CompleteWithin = d.read("completeWithinMs", w.CompleteMs, 0, maxWithin)
	r.Warned = d.read("warnedMs", w.WarnedMs, 0, maxWithin)
	switch {
	case d.err != nil:
		return r, d.err
	case utf8.RuneCountInString(r.MessageID) > address.MaxID, utf8.RuneCountInString(r.SessionID) > address.MaxID:
		return r, fmt.Errorf("messageId or sessionId has more than %d characters", address.MaxID)
	case r.WithoutID() && r.From.IsZero():
		return r, errors.New("messageId is empty, and from and until do not say where its messages are")
	case r.Deadline.IsZero() && r.Within == 0:
		return r, errors.New("it states no deadline")
	case r.From.IsZero() != r.Until.IsZero():
		return r, errors.New("from and until go together")
	case r.Until.Before(r.From):
		return r, errors.New("until is before from")
	}
	return r, nil
}
