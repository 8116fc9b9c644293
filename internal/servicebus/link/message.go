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

	// Properties are the application properties that are strings, instants or spans, as string,
	// time.Time and time.Duration, without those of a dead letter; nil when there are none.
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
	m := &Message{}
	numberErr, err := m.read(&raw)
	if numberErr != nil {
		return nil, fmt.Errorf("link: sequence number of a peeked message: %w", numberErr)
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// errNoNumber: the message is none that a queue has.
var errNoNumber = errors.New("there is none")

// read takes what raw states, each section in one pass. Fields that cannot be read are left out;
// the errors are about the sequence number, and about the header or the time to live.
func (m *Message) read(raw *amqp.Message) (numberErr, err error) {
	header, headerErr := amqp.DecodeHeader(raw.Header)
	m.DeliveryCount = header.DeliveryCount
	numberErr = m.readAnnotations(raw.MessageAnnotations)
	m.readProperties(raw.Properties)
	m.readApplicationProperties(raw.ApplicationProperties)
	life, lifeErr := raw.LifeSince(m.EnqueuedTime)
	if lifeErr == nil {
		m.TimeToLive = life
	}
	return numberErr, errors.Join(headerErr, lifeErr)
}

// readAnnotations takes the annotations of the broker.
func (m *Message) readAnnotations(raw amqp.Raw) (numberErr error) {
	numberErr = errNoNumber
	eachPair(raw, func(name []byte, value amqp.Reader) {
		switch string(name) {
		case "x-opt-sequence-number":
			long := value
			long.Long()
			m.SequenceNumber, numberErr = value.Integer(), long.Err()
		case "x-opt-enqueued-time":
			m.EnqueuedTime = timestamp(value)
		case "x-opt-scheduled-enqueue-time":
			m.ScheduledEnqueueTime = timestamp(value)
		case "x-opt-message-state":
			m.State = State(value.Integer())
		case "x-opt-deadletter-source":
			m.DeadLetterSource = text(value)
		}
	})
	return numberErr
}

// readProperties takes the properties of the message.
func (m *Message) readProperties(raw amqp.Raw) {
	if raw == nil {
		return
	}
	r := amqp.NewReader(raw)
	list, n := r.List()
	for i := range min(n, amqp.PropertyGroupID+1) {
		value := amqp.NewReader(list.Raw())
		if list.Err() != nil {
			return
		}
		switch i {
		case amqp.PropertyMessageID:
			m.MessageID = identifier(value)
		case amqp.PropertyCorrelationID:
			m.CorrelationID = identifier(value)
		case amqp.PropertyGroupID:
			m.SessionID = text(value)
		}
	}
}

// A ReceivedMessage is a message that a Receiver has taken. Its unreadable fields are left out, so
// that each message can be settled.
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
	raw, _ := amqp.ParseHead(d.Payload) // what can be read
	_, _ = m.read(&raw)                 // the rest of it counts
	m.LockedUntil = annotated(raw.MessageAnnotations, "x-opt-locked-until")
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
func (m *ReceivedMessage) Body() []byte { return firstData(m.Encoded) }

// firstData returns the first data section of a message, nil where there is none.
func firstData(encoded []byte) []byte {
	raw, err := amqp.ParseMessage(encoded)
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

// readApplicationProperties takes strings, instants and spans, and skips the others, be
// they such that nobody can decode them. Most dead letters have none but those that say why they
// are there.
func (m *Message) readApplicationProperties(raw amqp.Raw) {
	eachPair(raw, func(name []byte, value amqp.Reader) {
		var v any
		switch string(name) {
		case "", "DeadLetterErrorDescription":
		case "DeadLetterReason":
			m.DeadLetterReason = text(value)
		default:
			v = amqp.TimeOrSpan(value.Value())
		}
		switch v.(type) {
		case string, time.Time, time.Duration:
			if m.Properties == nil {
				m.Properties = map[string]any{}
			}
			m.Properties[string(name)] = v
		}
	})
}

// eachPair calls see with the pairs of a map, as far as it can be read; name is empty where the key
// is no text.
func eachPair(raw amqp.Raw, see func(name []byte, value amqp.Reader)) {
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
		see(name, value)
	}
}

// annotated is the timestamp with that key, the zero time where there is none.
func annotated(annotations amqp.Raw, key string) time.Time {
	r, ok := amqp.MapLookup(annotations, key)
	if !ok {
		return time.Time{}
	}
	return timestamp(r)
}

// timestamp is the zero time where r has none.
func timestamp(r amqp.Reader) time.Time {
	if r.Null() {
		return time.Time{}
	}
	t := r.Timestamp()
	if r.Err() != nil {
		return time.Time{}
	}
	return t.Time()
}

// text is "" where r has no string.
func text(r amqp.Reader) string {
	s, _ := r.Value().(string)
	return s
}

// identifier is a message-id or correlation-id as text.
func identifier(r amqp.Reader) string {
	if r.IsString() {
		return r.String() // and boxes nothing
	}
	return amqp.IDText(r.Value())
}
