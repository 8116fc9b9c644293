// SPDX-License-Identifier: Apache-2.0

package dlq

import (
	"crypto/sha256"
	"encoding/hex"
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

// Copying says how copies differ from their dead letters, beside the values that all of them lose.
// Those are the marks of the dead letter, the time to live and the deadlines that it stated, which
// would be over at once.
type Copying struct {
	Within time.Duration // deadline of the copy, from when it is enqueued; 0 = what its entity gives it
	TTL    time.Duration // time to live, whole milliseconds; 0 = what its entity gives it
	NewIDs bool          // an id of its own, for entities that would take the copy for a duplicate
}

// lost are the application properties that a copy does not have.
var lost = map[string]bool{
	deadLetterReason: true, deadLetterDescription: true,
	statesDeadline: true, statesWithin: true, statesComplete: true, statesExpiry: true,
	PropertyFrom: true, PropertyNumber: true, PropertyReason: true, PropertyDescription: true, PropertyMessageID: true,
}

// Encode returns the copy of a dead letter from place. The body and whatever is not named here
// stays byte for byte.
func (c Copying) Encode(place Place, l *Letter) ([]byte, error) {
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
	amqp.StateLife(&header, &p, c.TTL, time.Now())
	if c.NewIDs {
		p.MessageID = copyID(place, l)
	}
	out := amqp.Message{
		Header: header.Raw(), Properties: p.Raw(), Body: l.message.Body, Footer: l.message.Footer,
		MessageAnnotations: annotations(l), ApplicationProperties: c.properties(place, l),
	}
	return out.Append(nil), nil
}

// copyID is the same however often the dead letter is copied, so that a duplicate is seen for what
// it is.
func copyID(place Place, l *Letter) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%d\n%d", place, l.Number, l.EnqueuedTime.UnixNano()))
	return "resubmitted-" + hex.EncodeToString(sum[:12])
}

// annotations are those that a sender may set.
func annotations(l *Letter) amqp.Raw {
	if l.PartitionKey == nil {
		return nil
	}
	b, start := amqp.BeginMap(nil)
	b = amqp.AppendSymbol(b, "x-opt-partition-key")
	b = amqp.AppendString(b, *l.PartitionKey)
	return amqp.EndMap(b, start, 1)
}

// properties are those of the dead letter, but for what is lost, and the history.
func (c Copying) properties(place Place, l *Letter) amqp.Raw {
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
			if key.IsText() && lost[string(key.StringBytes())] {
				continue
			}
			b = amqp.AppendRaw(amqp.AppendRaw(b, name), value)
			pairs++
		}
	}
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
	if c.Within > 0 {
		text(statesWithin, c.Within.String())
	}
	return amqp.EndMap(b, start, pairs)
}
