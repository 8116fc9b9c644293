// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"encoding/json"
	"strconv"
	"time"
)

// An encoder writes companions as encoding/json would write a wireCompanion, byte for byte, without
// its reflection: every monitored message passes here, and this was a third of what one cost. It
// keeps its memory from one companion to the next.
type encoder struct {
	body []byte // of the last companion
	err  error  // the first one, of the last companion

	// What stands behind the ids of a reference is the same for all messages of a batch.
	last       Reference
	start, end int // of what was written for last, in body
}

// encode returns the body of c, which is valid until the next call.
func (e *encoder) encode(c *Companion) ([]byte, error) {
	e.err, e.end = nil, 0
	b := append(e.body[:0], `{"version":`...)
	b = strconv.AppendInt(b, int64(c.Version()), 10)
	b = e.text(append(b, `,"kind":`...), c.kind())
	b = e.text(append(b, `,"entity":`...), c.Entity)
	if c.Attempt != 0 {
		b = strconv.AppendInt(append(b, `,"attempt":`...), int64(c.Attempt), 10)
	}
	if c.IsSlot() {
		b = e.time(append(b, `,"slotEnd":`...), c.SlotEnd)
		if length := c.length(); length != shortSlot {
			b = strconv.AppendInt(append(b, `,"slotMs":`...), length.Milliseconds(), 10)
		}
		if len(c.Lives) > 0 {
			b = appendLives(append(b, `,"livesMs":`...), c.Lives)
		}
		for i, span := range c.Spans {
			if i == 0 {
				b = append(b, `,"spansMs":[[`...)
			} else {
				b = append(b, `,[`...)
			}
			b = append(strconv.AppendInt(b, span.Shortest.Milliseconds(), 10), ',')
			b = append(strconv.AppendInt(b, span.Longest.Milliseconds(), 10), ']')
		}
		if len(c.Spans) > 0 {
			b = append(b, ']')
		}
		if len(c.Defaults) > 0 {
			b = appendLives(append(b, `,"defaultsMs":`...), c.Defaults)
		}
	}
	for i := range c.References {
		if i == 0 {
			b = append(b, `,"references":[`...)
		} else {
			b = append(b, ',')
		}
		b = e.reference(b, &c.References[i])
	}
	if len(c.References) > 0 {
		b = append(b, ']')
	}
	e.body = append(b, '}')
	e.last = Reference{} // keeps hold of nothing
	return e.body, e.err
}

// appendLives appends times to live in milliseconds.
func appendLives(b []byte, lives []time.Duration) []byte {
	for i, life := range lives {
		b = strconv.AppendInt(append(b, "[,"[min(i, 1)]), life.Milliseconds(), 10)
	}
	return append(b, ']')
}

func (e *encoder) reference(b []byte, r *Reference) []byte {
	b = e.text(append(b, `{"messageId":`...), r.MessageID)
	if r.SessionID != "" {
		b = e.text(append(b, `,"sessionId":`...), r.SessionID)
	}
	if r.PartitionKey != "" {
		b = e.text(append(b, `,"partitionKey":`...), r.PartitionKey)
	}
	if e.end > 0 && r.promisedAs(&e.last) {
		return append(b, b[e.start:e.end]...)
	}
	e.start = len(b)
	b = e.time(append(b, `,"sent":`...), r.Sent)
	if !r.From.IsZero() {
		b = e.time(append(b, `,"from":`...), r.From)
		b = e.time(append(b, `,"until":`...), r.Until)
	}
	b = e.time(append(b, `,"deadline":`...), r.Deadline)
	if ms := r.Within.Milliseconds(); ms != 0 {
		b = strconv.AppendInt(append(b, `,"withinMs":`...), ms, 10)
	}
	if r.Stated != "" {
		b = e.text(append(b, `,"stated":`...), r.Stated)
	}
	if r.Once {
		b = append(b, `,"once":true`...)
	}
	if ms := r.CompleteWithin.Milliseconds(); ms != 0 {
		b = strconv.AppendInt(append(b, `,"completeWithinMs":`...), ms, 10)
	}
	if ms := r.Warned.Milliseconds(); ms != 0 {
		b = strconv.AppendInt(append(b, `,"warnedMs":`...), ms, 10)
	}
	if r.Incomplete {
		b = append(b, `,"incomplete":true`...)
	}
	if r.Traceparent != "" {
		b = e.text(append(b, `,"traceparent":`...), r.Traceparent)
	}
	if r.Missed != nil {
		b = e.value(append(b, `,"missed":`...), r.Missed)
	}
	if r.Notified != "" {
		b = e.text(append(b, `,"notified":`...), r.Notified)
	}
	b = append(b, '}')
	e.last, e.end = *r, len(b)
	return b
}

// promisedAs reports whether two references differ in nothing but their ids.
func (r *Reference) promisedAs(o *Reference) bool {
	return r.Sent.Equal(o.Sent) && r.From.Equal(o.From) && r.Until.Equal(o.Until) && r.Deadline.Equal(o.Deadline) &&
		r.Within == o.Within && r.Stated == o.Stated && r.Once == o.Once && r.Missed == o.Missed &&
		r.CompleteWithin == o.CompleteWithin && r.Warned == o.Warned && r.Incomplete == o.Incomplete && r.Traceparent == o.Traceparent &&
		r.Notified == o.Notified
}

// text appends s as a JSON string.
func (e *encoder) text(b []byte, s string) []byte {
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ', c >= 0x7f, c == '"', c == '\\', c == '<', c == '>', c == '&':
			return e.value(b, s) // which escapes them
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

func (e *encoder) time(b []byte, t time.Time) []byte {
	quoted, err := t.UTC().AppendText(append(b, '"'))
	if err != nil {
		e.fail(err)
		return b
	}
	return append(quoted, '"')
}

func (e *encoder) value(b []byte, v any) []byte {
	encoded, err := json.Marshal(v)
	if err != nil {
		e.fail(err)
	}
	return append(b, encoded...)
}

func (e *encoder) fail(err error) {
	if e.err == nil {
		e.err = err
	}
}
