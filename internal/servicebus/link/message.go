// SPDX-License-Identifier: Apache-2.0

package link

import (
	"errors"
	"fmt"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/amqp/client"
	"overdue/internal/traceparent"
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
	// time.Time, without those of a dead letter; nil when there are none.
	Properties map[string]any
}

// Traceparent returns the trace context that m carries, "" = none.
func (m *Message) Traceparent() string {
	c, _ := traceparent.Of(func(name string) any { return m.Properties[name] })
	return c.String()
}

// parseMessage reads a peeked message. Only what Message holds is decoded, and the rest may be of
// any form: one message must not keep the others of its queue from being checked.
func parseMessage(b []byte) (*Message, error) {
	raw, err := amqp.ParseMessage(b)
	if err != nil {
		return nil, err
	}
	number, ok := amqp.MapLookup(raw.MessageAnnotations, "x-opt-sequence-number")
	if !ok {
		return nil, fmt.Errorf("link: a peeked message has no sequence number")
	}
	number.Long()
	if err := number.Err(); err != nil {
		return nil, fmt.Errorf("link: sequence number of a peeked message: %w", err)
	}
	m := &Message{}
	if err := m.read(&raw); err != nil {
		return nil, err
	}
	return m, nil
}

// read takes what raw states. What cannot be read is left out; the error is about the header or the
// time to live.
func (m *Message) read(raw *amqp.Message) error {
	header, headerErr := amqp.DecodeHeader(raw.Header)
	m.DeliveryCount = header.DeliveryCount
	m.readProperties(raw.ApplicationProperties)
	if r, ok := amqp.MapLookup(raw.MessageAnnotations, "x-opt-sequence-number"); ok {
		m.SequenceNumber = r.Integer()
	}
	m.EnqueuedTime = timestamp(raw.MessageAnnotations, "x-opt-enqueued-time")
	life, lifeErr := raw.LifeSince(m.EnqueuedTime)
	if lifeErr == nil {
		m.TimeToLive = life
	}
	m.ScheduledEnqueueTime = timestamp(raw.MessageAnnotations, "x-opt-scheduled-enqueue-time")
	if r, ok := amqp.MapLookup(raw.MessageAnnotations, "x-opt-message-state"); ok {
		m.State = State(r.Integer())
	}
	m.MessageID = identifier(raw.Properties, amqp.PropertyMessageID)
	m.CorrelationID = identifier(raw.Properties, amqp.PropertyCorrelationID)
	m.SessionID = text(amqp.ListField(raw.Properties, amqp.PropertyGroupID))
	m.DeadLetterSource = text(amqp.MapLookup(raw.MessageAnnotations, "x-opt-deadletter-source"))
	return errors.Join(headerErr, lifeErr)
}

// A ReceivedMessage is a message that a Receiver has taken. What cannot be read of it is left out,
// so that each can be settled.
type ReceivedMessage struct {
	Message
	LockToken   Lock      // the zero Lock: it came without one
	LockedUntil time.Time // by the broker's clock; zero: the lock does not lapse
	ContentType string
	Encoded     []byte // the whole message; nil from a BareReceiver

	delivery *client.Delivery
}

// newReceived reads a message that was taken.
func newReceived(d *client.Delivery, bare bool) *ReceivedMessage {
	m := &ReceivedMessage{delivery: d, LockToken: lockOf(d.Tag)}
	raw := beforeBody(d.Payload)
	_ = m.read(&raw) // the rest of it counts
	m.LockedUntil = timestamp(raw.MessageAnnotations, "x-opt-locked-until")
	if r, ok := amqp.ListField(raw.Properties, amqp.PropertyContentType); ok {
		switch v := r.Value().(type) {
		case amqp.Symbol:
			m.ContentType = string(v)
		case string:
			m.ContentType = v
		}
	}
	if bare {
		d.Payload = nil
	} else {
		m.Encoded = d.Payload
	}
	return m
}

// Body returns the first data section, nil where there is none.
func (m *ReceivedMessage) Body() []byte {
	raw, err := amqp.ParseMessage(m.Encoded)
	if err != nil {
		return nil
	}
	for section, err := range amqp.DataSections(raw.Body) {
		if err == nil {
			return section
		}
		break
	}
	return nil
}

// beforeBody reads the sections before the body, up to what cannot be read. The end of the message
// may be missing.
func beforeBody(b []byte) (m amqp.Message) {
	r := amqp.NewReader(b)
	for r.Err() == nil && !r.Done() {
		code := r.Descriptor()
		value := r.Raw()
		if r.Err() != nil {
			break
		}
		switch code {
		case amqp.CodeHeader:
			m.Header = value
		case amqp.CodeDeliveryAnnotations:
		case amqp.CodeMessageAnnotations:
			m.MessageAnnotations = value
		case amqp.CodeProperties:
			m.Properties = value
		case amqp.CodeApplicationProperties:
			m.ApplicationProperties = value
		default:
			return m
		}
	}
	return m
}

// readProperties decodes the application properties that are strings or timestamps, and skips the
// others, be they such that nobody can decode them. Most dead letters have none but those that say
// why they are there.
func (m *Message) readProperties(raw amqp.Raw) {
	if raw == nil {
		return
	}
	r := amqp.NewReader(raw)
	pairs, n := r.Map()
	for range n {
		var name []byte
		if pairs.IsText() {
			name = pairs.StringBytes()
		} else {
			pairs.Skip()
		}
		value := amqp.NewReader(pairs.Raw())
		if pairs.Err() != nil {
			return
		}
		var v any
		switch string(name) {
		case "", "DeadLetterErrorDescription":
		case "DeadLetterReason":
			m.DeadLetterReason, _ = value.Value().(string)
		default:
			v = value.Value()
		}
		if at, ok := v.(amqp.Timestamp); ok {
			v = at.Time()
		}
		switch v.(type) {
		case string, time.Time:
			if m.Properties == nil {
				m.Properties = map[string]any{}
			}
			m.Properties[string(name)] = v
		}
	}
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
