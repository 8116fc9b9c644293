// SPDX-License-Identifier: Apache-2.0

package link

import (
	"fmt"
	"time"

	"overdue/internal/amqp"
)

// State is what a message on a queue waits for.
type State int32

// The states of messages, the values of x-opt-message-state (azservicebus, MessageState).
const (
	Active    State = 0
	Deferred  State = 1
	Scheduled State = 2
)

// Message is what a peek shows of a message, without its body. Times are UTC; a zero one is not
// stated.
type Message struct {
	SequenceNumber       int64
	EnqueuedTime         time.Time
	ScheduledEnqueueTime time.Time
	State                State
	TimeToLive           time.Duration // 0 = none of its own
	DeliveryCount        uint32        // failed deliveries so far
	MessageID            string        // an id of another type is written out
	CorrelationID        string        // likewise
	SessionID            string        // "" where it has none as well
	DeadLetterReason     string        // "" = not a dead letter
	DeadLetterSource     string        // where it was dead-lettered, once it was forwarded from there

	// Properties are the application properties that are strings or timestamps, as string and
	// time.Time; nil when there are none.
	Properties map[string]any
}

// parseMessage reads an encoded message. Only what Message holds is decoded: go-amqp fails on
// some types, and a message with one of them must not keep the others of its queue from
// being looked at.
func parseMessage(b []byte) (*Message, error) {
	raw, err := amqp.ParseMessage(b)
	if err != nil {
		return nil, err
	}
	header, err := amqp.DecodeHeader(raw.Header)
	if err != nil {
		return nil, err
	}
	m := &Message{
		DeliveryCount: header.DeliveryCount,
		Properties:    texts(raw.ApplicationProperties),
	}
	number, ok := amqp.MapLookup(raw.MessageAnnotations, "x-opt-sequence-number")
	if !ok {
		return nil, fmt.Errorf("link: a peeked message has no sequence number")
	}
	m.SequenceNumber = number.Long()
	if err := number.Err(); err != nil {
		return nil, fmt.Errorf("link: sequence number of a peeked message: %w", err)
	}
	m.EnqueuedTime = timestamp(raw.MessageAnnotations, "x-opt-enqueued-time")
	if m.TimeToLive, err = raw.LifeSince(m.EnqueuedTime); err != nil {
		return nil, err
	}
	m.ScheduledEnqueueTime = timestamp(raw.MessageAnnotations, "x-opt-scheduled-enqueue-time")
	if r, ok := amqp.MapLookup(raw.MessageAnnotations, "x-opt-message-state"); ok {
		m.State = State(r.Integer())
	}
	m.MessageID = identifier(raw.Properties, amqp.PropertyMessageID)
	m.CorrelationID = identifier(raw.Properties, amqp.PropertyCorrelationID)
	m.SessionID = text(amqp.ListField(raw.Properties, amqp.PropertyGroupID))
	m.DeadLetterSource = text(amqp.MapLookup(raw.MessageAnnotations, "x-opt-deadletter-source"))
	m.DeadLetterReason, _ = m.Properties["DeadLetterReason"].(string)
	return m, nil
}

// texts decodes the application properties that are strings or timestamps, and skips the
// others, be they such that nobody can decode them.
func texts(raw amqp.Raw) map[string]any {
	if raw == nil {
		return nil
	}
	properties := map[string]any{}
	for name, value := range amqp.Entries(raw) {
		switch v := value.(type) {
		case string:
			properties[name] = v
		case amqp.Timestamp:
			properties[name] = v.Time()
		}
	}
	return properties
}

// timestamp is an annotation of the broker, the zero time when it is not there.
func timestamp(annotations amqp.Raw, key string) time.Time {
	r, ok := amqp.MapLookup(annotations, key)
	if !ok || r.Null() {
		return time.Time{}
	}
	t := r.Timestamp()
	if r.Err() != nil {
		return time.Time{}
	}
	return t.Time()
}

// text is the string that r is at, "" when there is none.
func text(r amqp.Reader, ok bool) string {
	if !ok {
		return ""
	}
	s, _ := r.Value().(string)
	return s
}

// identifier is a message-id or correlation-id as text.
func identifier(properties amqp.Raw, field int) string {
	r, ok := amqp.ListField(properties, field)
	if !ok {
		return ""
	}
	return amqp.IDText(r.Value())
}
