// SPDX-License-Identifier: Apache-2.0

package dlq

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"overdue/internal/amqp"
)

// Application properties of a copy: where it comes from, and why it was there.
const (
	PropertyFrom        = "overdue-resubmitted-from"
	PropertyNumber      = "overdue-resubmitted-sequence-number"
	PropertyReason      = "overdue-resubmitted-reason"
	PropertyDescription = "overdue-resubmitted-description"
	PropertyMessageID   = "overdue-resubmitted-message-id" // of the dead letter, where the copy has another
)

// Copying says how copies differ from their dead letters, beside the marks of a dead letter, which
// all of them lose. The zero value keeps the rest.
//
// A copy has the deadline that its message had, counted again from when the copy is enqueued, and
// with a Delay from when it becomes available. That is its time to live, and the time from the
// message's enqueued-time to the deadline that it stated. A deadline that was over by then, or that
// cannot be read, is left out. With NoDeadline, Within or TTL the copy has nothing of all this.
type Copying struct {
	NoDeadline bool          // none but what its entity gives it
	Within     time.Duration // deadline of the copy, from when it is enqueued; 0 = see above
	TTL        time.Duration // time to live, whole milliseconds; 0 = see above
	Delay      time.Duration // until the copy becomes available; 0 = at once
	Edits      Edits         // of application properties
	Body       *string       // instead of that of the dead letter; nil = that stays
	NewIDs     bool          // an id of its own, for entities that would take the copy for a duplicate
}

// Longest is how long a duration of a [Copying] may be.
const Longest = amqp.LongestLife

// keepsDeadline reports whether copies have the deadlines that their messages had.
func (c *Copying) keepsDeadline() bool { return !c.NoDeadline && c.Within == 0 && c.TTL == 0 }

// Check refuses durations that are out of bounds or contradict each other. names are what the user
// calls them: the deadline, the time to live and the delay.
func (c *Copying) Check(within, ttl, delay string) error {
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{within, c.Within}, {ttl, c.TTL}, {delay, c.Delay}} {
		switch {
		case d.value < 0 || d.value > 0 && d.value < time.Millisecond:
			return fmt.Errorf("%s is %s; it must be at least 1ms", d.name, d.value)
		case d.value > Longest:
			return fmt.Errorf("%s is %s; it must be at most 100 years", d.name, d.value)
		}
	}
	if c.NoDeadline && c.Within+c.TTL > 0 {
		return fmt.Errorf("no deadline is wanted, and %s or %s states one; keep one of them", within, ttl)
	}
	return nil
}

// lost are the application properties that a copy does not have, or that are written again.
var lost = map[string]bool{
	deadLetterReason: true, deadLetterDescription: true,
	statesDeadline: true, statesWithin: true, statesExpiry: true,
	PropertyFrom: true, PropertyNumber: true, PropertyReason: true, PropertyDescription: true, PropertyMessageID: true,
}

// Encode returns the copy of a dead letter from place. The body and whatever is not named here
// stays byte for byte. The error says which edit the dead letter does not take.
func (c *Copying) Encode(place Place, l *Letter) ([]byte, error) {
	header, err := amqp.DecodeHeader(l.message.Header)
	if err != nil {
		return nil, err
	}
	header = amqp.Header{Durable: header.Durable, Priority: header.Priority}
	p, err := amqp.DecodeProperties(l.message.Properties)
	if err != nil {
		return nil, err
	}
	// They say when the first one was made and expired.
	p.HasAbsoluteExpiryTime, p.HasCreationTime = false, false
	life := c.TTL
	if c.keepsDeadline() {
		life = l.TimeToLive.Duration
	}
	amqp.StateLife(&header, &p, life, time.Now())
	if c.NewIDs {
		p.MessageID = copyID(place, l)
	}
	body, err := c.body(l)
	if err != nil {
		return nil, err
	}
	properties, err := c.properties(place, l)
	if err != nil {
		return nil, err
	}
	out := amqp.Message{
		Header: header.Raw(), Properties: p.Raw(), Body: body, Footer: l.message.Footer,
		MessageAnnotations: c.annotations(l), ApplicationProperties: properties,
	}
	return out.Append(nil), nil
}

var errNoText = errors.New("the body is neither data nor text, and cannot be replaced")

// body is that of the copy. A text that takes its place is of the same kind, so that a consumer
// reads it as before.
func (c *Copying) body(l *Letter) ([]byte, error) {
	if c.Body == nil {
		return l.message.Body, nil
	}
	value, isValue := l.message.Value()
	if !isValue {
		for _, err := range amqp.DataSections(l.message.Body) {
			if err != nil {
				return nil, errNoText
			}
		}
		return amqp.AppendData(nil, []byte(*c.Body)), nil
	}
	switch value.Value().(type) {
	case string:
		return amqp.AppendValueSection(nil, amqp.AppendString(nil, *c.Body)), nil
	case []byte:
		return amqp.AppendValueSection(nil, amqp.AppendBinary(nil, []byte(*c.Body))), nil
	}
	return nil, errNoText
}

// copyID is the same however often the dead letter is copied, so that a duplicate is seen for what
// it is.
func copyID(place Place, l *Letter) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%d\n%d", place, l.Number, l.EnqueuedTime.UnixNano()))
	return "resubmitted-" + hex.EncodeToString(sum[:12])
}

// annotations are those that a sender may set.
func (c *Copying) annotations(l *Letter) amqp.Raw {
	b, start := amqp.BeginMap(nil)
	pairs := 0
	if l.PartitionKey != nil {
		b = amqp.AppendString(amqp.AppendSymbol(b, "x-opt-partition-key"), *l.PartitionKey)
		pairs++
	}
	if c.Delay > 0 {
		b = amqp.AppendTimestamp(amqp.AppendSymbol(b, "x-opt-scheduled-enqueue-time"), amqp.TimestampOf(time.Now().Add(c.Delay)))
		pairs++
	}
	if pairs == 0 {
		return nil
	}
	return amqp.EndMap(b, start, pairs)
}

// properties are those of the dead letter, but for what is lost or edited, and the history.
func (c *Copying) properties(place Place, l *Letter) (amqp.Raw, error) {
	drops := func(name string) bool {
		_, isEdited := c.Edits[name]
		isKept := name != statesComplete || c.keepsDeadline() && l.statesCompletion()
		return lost[name] || isEdited || !isKept
	}
	b, start := amqp.BeginMap(nil)
	pairs := 0
	if raw := l.message.ApplicationProperties; raw != nil {
		r := amqp.NewReader(raw)
		entries, n := r.Map()
		for range n {
			name, value := entries.Raw(), entries.Raw()
			if entries.Err() != nil {
				break // it has been parsed before
			}
			key := amqp.NewReader(name)
			if key.IsText() && drops(string(key.StringBytes())) {
				continue
			}
			b = amqp.AppendRaw(amqp.AppendRaw(b, name), value)
			pairs++
		}
	}
	b, edited, err := c.Edits.append(b, l)
	if err != nil {
		return nil, err
	}
	pairs += edited
	text := func(name, value string) {
		if value != "" {
			b = amqp.AppendString(amqp.AppendString(b, name), value)
			pairs++
		}
	}
	text(PropertyFrom, place.String())
	b = amqp.AppendLong(amqp.AppendString(b, PropertyNumber), l.Number)
	pairs++
	text(PropertyReason, l.Reason)
	text(PropertyDescription, l.Description)
	if c.NewIDs {
		text(PropertyMessageID, l.MessageID)
	}
	within := c.Within
	if c.keepsDeadline() {
		within = l.statedWithin()
	}
	if within > 0 {
		text(statesWithin, within.String())
	}
	return amqp.EndMap(b, start, pairs), nil
}
