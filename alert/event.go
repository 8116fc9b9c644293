// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"overdue/internal/servicebus/address"
)

// CloudEvents types.
const (
	TypeMissed     = "overdue.deadline.missed"     // a message was not received by its deadline, and was expired
	TypeIncomplete = "overdue.deadline.incomplete" // a message was not settled by its deadline, and is still there
	TypeNear       = "overdue.deadline.near"       // a message is not settled, and its deadline is near
	TypeBlind      = "overdue.blind"               // Overdue sees deadlines again after a time in which it saw none
)

// typeTest is the type of the events of `overdue doctor --send-test`: nothing has happened.
const typeTest = "overdue.test"

var eventTypes = []string{TypeMissed, TypeIncomplete, TypeNear, TypeBlind}

// shortType is how filters, links and log lines name a type.
func shortType(eventType string) string {
	return strings.TrimPrefix(strings.TrimPrefix(eventType, "overdue."), "deadline.")
}

// Event reports what happened to one message, or that Overdue was blind. Its JSON form is a CloudEvent 1.0 in structured mode.
type Event struct {
	ID      string // see [IDOf] and [IDOfReminder]; the same for each delivery of the event
	Type    string // one of the Type constants
	Source  string // see [SourceOf]
	Subject string // see [EventData.Name]; of TypeBlind, the monitor that was blind, as host:port
	Time    time.Time
	// Traceparent is the distributed tracing extension: the span of the event if it is recorded,
	// or else that of the message; "" = neither is known.
	Traceparent string
	// SendTraceparent is the context of the send; "" = not known. It is not part of the JSON form.
	SendTraceparent string
	Data            EventData
	// Blind is the data of TypeBlind, whose Data is the zero value; nil for all others.
	Blind *Blind `json:"-"`
}

// EventData is the data of a deadline event. Times are by the broker's clock.
type EventData struct {
	Entity           string    `json:"entity"`
	Subscription     string    `json:"subscription,omitempty"`
	MessageID        string    `json:"messageId"`
	SessionID        string    `json:"sessionId,omitempty"`
	SequenceNumber   int64     `json:"sequenceNumber"`
	EnqueuedTime     time.Time `json:"enqueuedTime"`
	Deadline         time.Time `json:"deadline"`
	DeadlineKind     string    `json:"deadlineKind"` // KindReceived or KindCompleted
	DeadLetteredTime time.Time `json:"deadLetteredTime,omitzero"`
	LagMs            int64     `json:"lagMs"` // from the time that the event is about to its detection
	Strategy         string    `json:"strategy,omitempty"`
	Evidence         string    `json:"evidence,omitempty"` // "deadLetter" or "expired": what shows that it was missed
	DeadLetterReason string    `json:"deadLetterReason,omitempty"`
	WarnBeforeMs     int64     `json:"warnBeforeMs,omitempty"` // of TypeNear: the configured time before the deadline
	State            string    `json:"state,omitempty"`        // of a message that is still there: "active", also while locked, or "deferred"
	CorrelationID    string    `json:"correlationId,omitempty"`
	DeliveryCount    uint32    `json:"deliveryCount"`
	Muted            bool      `json:"muted,omitempty"` // the entity was muted: the log and the history have the event, and no sink

	Labels map[string]string `json:"labels,omitempty"` // of the entity, as the operator states them
}

// Kinds of deadlines.
const (
	KindReceived  = "received"
	KindCompleted = "completed"
)

// Lag is the time from the deadline to dead-lettering, or else from the time that the event is
// about to its detection.
func (d *EventData) Lag() time.Duration {
	if d.DeadLetteredTime.IsZero() {
		return time.Duration(d.LagMs) * time.Millisecond
	}
	return d.DeadLetteredTime.Sub(d.Deadline)
}

// Name names the message in its entity, see [address.MessageName].
func (d *EventData) Name() string { return address.MessageName(d.MessageID, d.SequenceNumber) }

// Path names the entity: a queue, or topic/Subscriptions/name.
func (d *EventData) Path() string {
	return address.Address{Name: d.Entity, Subscription: d.Subscription}.Entity()
}

// IDOf returns the id of the event that a message missed its deadline. It depends on the message
// alone, not on the companion, the worker or the attempt.
//
// entity is a path without the namespace, in any case. A namespace has several names (with a port,
// an alias, a private endpoint), and two monitors that use two of them must agree. Messages of two
// namespaces can share an id only if path, number and enqueued time agree; their sources differ
// then.
func IDOf(entity string, number int64, enqueued time.Time) string {
	text := append(make([]byte, 0, 128), strings.ToLower(entity)...)
	text = strconv.AppendInt(append(text, '\n'), number, 10)
	text = strconv.AppendInt(append(text, '\n'), enqueued.UnixMilli(), 10)
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// IDOfReminder is [IDOf] for an event of another type about the same message. before distinguishes
// several warnings of one deadline, and is 0 for events of other types.
func IDOfReminder(eventType, entity string, number int64, enqueued time.Time, before time.Duration) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%d\n%d\n%d",
		eventType, strings.ToLower(entity), number, enqueued.UnixMilli(), before.Milliseconds()))
	return hex.EncodeToString(sum[:16])
}

// SourceOf is the source of events about an entity, or about the whole namespace if entity is "".
// The namespace has the form of [NamespaceOf].
func SourceOf(namespace, entity string) string {
	return strings.TrimSuffix("sb://"+NamespaceOf(namespace)+"/"+entity, "/")
}

// defaultPorts are the ports of AMQP over TLS and over WebSockets
// (learn.microsoft.com/azure/service-bus-messaging/service-bus-amqp-protocol-guide).
var defaultPorts = []string{"5671", "443"}

// NamespaceOf normalizes the address of a namespace, host or host:port: lower case, without a
// default port and without a final dot. Two aliases of one namespace stay different.
func NamespaceOf(address string) string {
	address = strings.ToLower(address)
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		host, port = address, ""
	}
	host = strings.TrimSuffix(host, ".")
	if port == "" || slices.Contains(defaultPorts, port) {
		if strings.Contains(host, ":") && port != "" {
			return "[" + host + "]"
		}
		return host
	}
	return net.JoinHostPort(host, port)
}

// Attributes that every event states of itself, by CloudEvents 1.0.
const (
	specVersion     = "1.0"
	dataContentType = "application/json"
)

// MarshalJSON returns the structured mode of the CloudEvents JSON format.
func (e Event) MarshalJSON() ([]byte, error) {
	var data any = e.Data
	if e.Blind != nil {
		data = e.Blind
	}
	return json.Marshal(struct {
		SpecVersion     string    `json:"specversion"`
		ID              string    `json:"id"`
		Type            string    `json:"type"`
		Source          string    `json:"source"`
		Subject         string    `json:"subject,omitempty"` // never empty, by CloudEvents 1.0
		Time            time.Time `json:"time"`
		DataContentType string    `json:"datacontenttype"`
		Traceparent     string    `json:"traceparent,omitempty"`
		Data            any       `json:"data"`
	}{specVersion, e.ID, e.Type, e.Source, e.Subject, e.Time, dataContentType, e.Traceparent, data})
}

// UnmarshalJSON reads what MarshalJSON returns.
func (e *Event) UnmarshalJSON(text []byte) error {
	type plain Event
	if err := json.Unmarshal(text, (*plain)(e)); err != nil || e.Type != TypeBlind {
		return err
	}
	e.Data, e.Blind = EventData{}, &Blind{}
	return json.Unmarshal(text, &struct{ Data *Blind }{e.Blind})
}
