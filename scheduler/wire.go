// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"overdue/internal/traceparent"
	"overdue/scheduler/index"
)

// contentType is the content type of a companion on the monitor queue. Its body is
// JSON; the field "version" says whether a reader understands it.
const contentType = "application/vnd.overdue.companion+json"

// wireVersion is the latest. It is raised when a reader of the old form would misjudge the new one;
// a companion is written in the first version that can say it. Fields that a reader may ignore are
// added without raising it.
const wireVersion = 3

// Bounds of a companion. The monitor queue can be written by anybody who has the
// right to send, so a companion is input from outside.
const (
	maxBody   = 256 << 10
	maxEntity = 260 + len("/Subscriptions/") + 50 // of the path of a subscription, in characters
	maxID     = 128                               // of a message-id, session-id or partition key, in characters
	maxWithin = 100 * 365 * 24 * time.Hour
	maxSpan   = time.Minute // the monitor reads what was enqueued in as long a time
	maxSlot   = time.Second
)

type wireCompanion struct {
	Version    int             `json:"version"`
	Kind       string          `json:"kind"`
	Entity     string          `json:"entity"`
	Attempt    int             `json:"attempt,omitempty"`
	SlotEnd    instant         `json:"slotEnd,omitempty"`
	SlotMs     int64           `json:"slotMs,omitempty"`
	LivesMs    []int64         `json:"livesMs,omitempty"`
	SpansMs    [][2]int64      `json:"spansMs,omitempty"`
	DefaultsMs []int64         `json:"defaultsMs,omitempty"`
	References []wireReference `json:"references,omitempty"`
}

type wireReference struct {
	MessageID    string  `json:"messageId"`
	SessionID    string  `json:"sessionId,omitempty"`
	PartitionKey string  `json:"partitionKey,omitempty"`
	Sent         instant `json:"sent"`
	From         instant `json:"from,omitempty"`
	Until        instant `json:"until,omitempty"`
	Deadline     instant `json:"deadline"`
	WithinMs     int64   `json:"withinMs,omitempty"`
	Stated       string  `json:"stated,omitempty"`
	Once         bool    `json:"once,omitempty"`
	CompleteMs   int64   `json:"completeWithinMs,omitempty"`
	WarnedMs     int64   `json:"warnedMs,omitempty"`
	Incomplete   bool    `json:"incomplete,omitempty"`
	Traceparent  string  `json:"traceparent,omitempty"`
	Missed       *Missed `json:"missed,omitempty"`
	Notified     string  `json:"notified,omitempty"`
}

// An instant is a time.Time as JSON has it; "" = none. encoding/json takes several times as long
// for a time.Time, and every monitored message may have four.
type instant string

// instantOf is t, or sets err.
func instantOf(t time.Time, err *error) instant {
	text, textErr := t.UTC().MarshalText()
	if textErr != nil {
		*err = textErr
	}
	return instant(text)
}

// UnmarshalJSON reads what is written for a time.Time.
func (i *instant) UnmarshalJSON(b []byte) error {
	var t time.Time
	err := t.UnmarshalJSON(b)
	if !t.IsZero() {
		*i = instantOf(t, &err)
	}
	return err
}

func (i instant) time() time.Time {
	t, err := time.Parse(time.RFC3339Nano, string(i))
	if err != nil {
		return time.Time{}
	}
	return t
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
	w, err := c.wire()
	if err == nil {
		body, err = json.Marshal(w)
	}
	if err != nil {
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

// beyondFirst reports whether a reader of version 1 would misjudge the reference: it would expire a
// message that nobody asked to expire, report a missed deadline that was not, or find no name.
func (r *Reference) beyondFirst() bool {
	return r.WithoutID() || r.Stated == StatedComplete || r.Missed != nil && r.Missed.Type != ""
}

// Version is that of the wire form of c: the first that can say it.
func (c *Companion) Version() int {
	switch {
	case c.IsSlot() && c.length() != shortSlot:
		return 3
	case len(c.Spans) > 0 || slices.ContainsFunc(c.References, func(r Reference) bool { return r.beyondFirst() }):
		return 2
	}
	return 1
}

// wire is c as it is written.
func (c *Companion) wire() (w wireCompanion, err error) {
	w = wireCompanion{
		Version:    c.Version(),
		Kind:       c.kind(),
		Entity:     c.Entity,
		Attempt:    c.Attempt,
		References: make([]wireReference, len(c.References)),
	}
	for i := range c.References {
		w.References[i] = c.References[i].wire(&err)
	}
	if !c.IsSlot() {
		return w, err
	}
	w.SlotEnd, w.LivesMs, w.DefaultsMs = instantOf(c.SlotEnd, &err), milliseconds(c.Lives), milliseconds(c.Defaults)
	if length := c.length(); length != shortSlot {
		w.SlotMs = length.Milliseconds()
	}
	for _, span := range c.Spans {
		w.SpansMs = append(w.SpansMs, [2]int64{span.Shortest.Milliseconds(), span.Longest.Milliseconds()})
	}
	return w, err
}

func milliseconds(lives []time.Duration) []int64 {
	all := make([]int64, len(lives))
	for i, life := range lives {
		all[i] = life.Milliseconds()
	}
	return all
}

func (r *Reference) wire(err *error) wireReference {
	w := wireReference{
		MessageID:    r.MessageID,
		SessionID:    r.SessionID,
		PartitionKey: r.PartitionKey,
		Sent:         instantOf(r.Sent, err),
		Deadline:     instantOf(r.Deadline, err),
		WithinMs:     r.Within.Milliseconds(),
		Stated:       r.Stated,
		Once:         r.Once,
		CompleteMs:   r.CompleteWithin.Milliseconds(),
		WarnedMs:     r.Warned.Milliseconds(),
		Incomplete:   r.Incomplete,
		Traceparent:  r.Traceparent,
		Missed:       r.Missed,
		Notified:     r.Notified,
	}
	if !r.From.IsZero() {
		w.From, w.Until = instantOf(r.From, err), instantOf(r.Until, err)
	}
	return w
}

// ParseCompanion reads the wire form. Due is not part of it: it is the companion's
// own scheduled enqueue time. Every error means that the body can never be read, by
// this version at least; its text is a sentence for an operator who finds the companion in
// the dead-letter queue.
func ParseCompanion(body []byte) (Companion, error) {
	if len(body) > maxBody {
		return Companion{}, fmt.Errorf("scheduler: companion of %d bytes, at most %d are read", len(body), maxBody)
	}
	var w wireCompanion
	if err := json.Unmarshal(body, &w); err != nil {
		return Companion{}, fmt.Errorf("scheduler: companion is not the JSON of %s: %w", contentType, err)
	}
	if w.Version < 1 || w.Version > wireVersion {
		return Companion{}, fmt.Errorf("scheduler: companion version %d, this program reads versions 1 to %d", w.Version, wireVersion)
	}
	if w.Entity == "" || utf8.RuneCountInString(w.Entity) > maxEntity {
		return Companion{}, fmt.Errorf("scheduler: companion entity has %d characters, want 1 to %d", utf8.RuneCountInString(w.Entity), maxEntity)
	}
	if w.Attempt < 0 {
		return Companion{}, fmt.Errorf("scheduler: companion attempt %d is negative", w.Attempt)
	}
	switch {
	case w.Kind != kindEach && w.Kind != kindSlot:
		return Companion{}, fmt.Errorf("scheduler: companion kind %q, want %q or %q", w.Kind, kindEach, kindSlot)
	case w.Kind == kindEach && len(w.References) == 0:
		return Companion{}, errors.New("scheduler: companion of kind each names no message")
	case w.Kind == kindSlot:
		return w.slot()
	case len(w.References) > groupSize:
		return Companion{}, fmt.Errorf("scheduler: companion names %d messages, at most %d are read", len(w.References), groupSize)
	}
	c := Companion{Entity: w.Entity, Attempt: w.Attempt, References: make([]Reference, len(w.References))}
	for i := range w.References {
		r, err := w.References[i].reference(w.Version)
		if err != nil {
			return Companion{}, fmt.Errorf("scheduler: companion reference %d: %w", i, err)
		}
		c.References[i] = r
	}
	return c, nil
}

// slot is a companion of that kind.
func (w *wireCompanion) slot() (Companion, error) {
	switch {
	case len(w.References) > 0:
		return Companion{}, errors.New("scheduler: companion of kind slot names messages")
	case w.SlotEnd.time().IsZero() || len(w.LivesMs)+len(w.SpansMs) == 0:
		return Companion{}, errors.New("scheduler: companion of kind slot does not say when the slot ends, or for which times to live it stands")
	case len(w.LivesMs)+len(w.SpansMs) > groupSize || len(w.DefaultsMs) > groupSize:
		return Companion{}, fmt.Errorf("scheduler: companion of kind slot stands for %d times to live, at most %d are read", len(w.LivesMs)+len(w.SpansMs), groupSize)
	}
	length := shortSlot // of those that do not state it
	switch {
	case w.Version < 3 && w.SlotMs != 0, w.SlotMs < 0, w.SlotMs > maxSlot.Milliseconds():
		return Companion{}, fmt.Errorf("scheduler: companion of kind slot is %d ms long, want 1 to %d, and version 3", w.SlotMs, maxSlot.Milliseconds())
	case w.SlotMs > 0:
		length = time.Duration(w.SlotMs) * time.Millisecond
	}
	c := Companion{Entity: w.Entity, Attempt: w.Attempt, SlotEnd: w.SlotEnd.time(), SlotLength: length}
	for _, ms := range w.LivesMs {
		if ms <= 0 || ms > maxWithin.Milliseconds() {
			return Companion{}, fmt.Errorf("scheduler: companion of kind slot stands for a time to live of %d ms, want 1 to %d", ms, maxWithin.Milliseconds())
		}
		c.Lives = append(c.Lives, time.Duration(ms)*time.Millisecond)
	}
	for _, ms := range w.DefaultsMs {
		if !slices.Contains(w.LivesMs, ms) {
			return Companion{}, fmt.Errorf("scheduler: companion of kind slot has a default time to live of %d ms, which is none of those that it stands for", ms)
		}
		c.Defaults = append(c.Defaults, time.Duration(ms)*time.Millisecond)
	}
	for _, ms := range w.SpansMs {
		if ms[0] <= 0 || ms[1] < ms[0] || ms[1]-ms[0] > maxSpan.Milliseconds() || ms[1] > maxWithin.Milliseconds() {
			return Companion{}, fmt.Errorf("scheduler: companion of kind slot stands for times to live of %d to %d ms, want 1 to %d, and no more than %d apart",
				ms[0], ms[1], maxWithin.Milliseconds(), maxSpan.Milliseconds())
		}
		c.Spans = append(c.Spans, span{time.Duration(ms[0]) * time.Millisecond, time.Duration(ms[1]) * time.Millisecond})
	}
	return c, nil
}

func (w *wireReference) reference(version int) (Reference, error) {
	for _, id := range []struct{ name, value string }{
		{"messageId", w.MessageID}, {"sessionId", w.SessionID}, {"partitionKey", w.PartitionKey},
	} {
		if n := utf8.RuneCountInString(id.value); n > maxID {
			return Reference{}, fmt.Errorf("%s has %d characters, at most %d are allowed", id.name, n, maxID)
		}
	}
	r := Reference{
		MessageID: w.MessageID, SessionID: w.SessionID, PartitionKey: w.PartitionKey,
		Sent: w.Sent.time(), From: w.From.time(), Until: w.Until.time(), Deadline: w.Deadline.time(), Stated: w.Stated, Once: w.Once, Incomplete: w.Incomplete, Missed: w.Missed, Notified: w.Notified,
		Traceparent: traceparent.Valid(w.Traceparent), // a context that cannot be read costs no deadline
	}
	if r.Missed != nil {
		r.Missed.Traceparent = traceparent.Valid(r.Missed.Traceparent)
	}
	switch {
	case w.MessageID != "":
	case version < 2:
		return Reference{}, errors.New("messageId is empty")
	case r.From.IsZero():
		return Reference{}, errors.New("messageId is empty, and from and until do not say where its messages are")
	}
	for _, span := range []struct {
		name string
		ms   int64
		to   *time.Duration
	}{{"withinMs", w.WithinMs, &r.Within}, {"completeWithinMs", w.CompleteMs, &r.CompleteWithin}, {"warnedMs", w.WarnedMs, &r.Warned}} {
		if span.ms < 0 || span.ms > maxWithin.Milliseconds() {
			return Reference{}, fmt.Errorf("%s is %d, want 0 to %d", span.name, span.ms, maxWithin.Milliseconds())
		}
		*span.to = time.Duration(span.ms) * time.Millisecond
	}
	if r.Deadline.IsZero() && r.Within == 0 {
		return Reference{}, errors.New("it states no deadline")
	}
	if r.From.IsZero() != r.Until.IsZero() {
		return Reference{}, errors.New("from and until go together")
	}
	if r.Until.Before(r.From) {
		return Reference{}, errors.New("until is before from")
	}
	return r, nil
}
