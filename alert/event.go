// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"
)

// Event is one thing that somebody has to know. Its JSON form is a CloudEvent 1.0 in
// structured mode.
type Event struct {
	ID      string // see [IDOf] and [IDOfReminder]: the same message gives the same id, however often it is told
	Type    string // one of the Type constants
	Source  string // see [SourceOf]
	Subject string // the message-id
	Time    time.Time
	Data    EventData
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
	DeadlineKind     string    `json:"deadlineKind"` // which one: KindReceived or KindCompleted
	DeadLetteredTime time.Time `json:"deadLetteredTime,omitzero"`
	LagMs            int64     `json:"lagMs"` // how long after the instant that the event is about it was noticed
	Strategy         string    `json:"strategy,omitempty"`
	DeadLetterReason string    `json:"deadLetterReason,omitempty"`
	WarnBeforeMs     int64     `json:"warnBeforeMs,omitempty"` // of TypeNear: how long before the deadline somebody wants to be told
	State            string    `json:"state,omitempty"`        // of a message that is still there: "active" (waiting or locked) or "deferred"
	CorrelationID    string    `json:"correlationId,omitempty"`
	DeliveryCount    uint32    `json:"deliveryCount"`
}

// Kinds of deadlines.
const (
	KindReceived  = "received"
	KindCompleted = "completed"
)

// Lag is how long after its deadline a message was dead-lettered, or after the instant that the event is about noticed.
func (d *EventData) Lag() time.Duration {
	if d.DeadLetteredTime.IsZero() {
		return time.Duration(d.LagMs) * time.Millisecond
	}
	return d.DeadLetteredTime.Sub(d.Deadline)
}

// IDOf is the same for one message whichever companion, worker or attempt speaks of it, and however they spell its queue. entity is
// the path of that, without the namespace: a namespace has many names, as an address with a port, in another case, an alias, the
// name of a private endpoint, and two monitors that reach it by two of them have to agree. The number and the instant of the
// broker tell messages of one path apart, and those of two namespaces but for a chance of one in many millions, in which case
// their sources differ.
func IDOf(entity string, number int64, enqueued time.Time) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%d\n%d", strings.ToLower(entity), number, enqueued.UnixMilli()))
	return hex.EncodeToString(sum[:16])
}

// SourceOf is the source of events about an entity, or about the whole namespace where that is "". It shows the namespace as NamespaceOf
// writes it.
func SourceOf(namespace, entity string) string {
	return strings.TrimSuffix("sb://"+NamespaceOf(namespace)+"/"+entity, "/")
}

// defaultPorts are those that a name without a port means: of AMQP over TLS and over WebSockets
// (learn.microsoft.com/azure/service-bus-messaging/service-bus-amqp-protocol-guide).
var defaultPorts = []string{"5671", "443"}

// NamespaceOf is one way to write the address of a namespace, host or host:port: in lower case, without a port that is meant anyway and
// without a dot at the end. What it cannot tell is that two names lead to the same one.
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

// MarshalJSON is the structured mode of the CloudEvents JSON format.
func (e Event) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		SpecVersion     string    `json:"specversion"`
		ID              string    `json:"id"`
		Type            string    `json:"type"`
		Source          string    `json:"source"`
		Subject         string    `json:"subject"`
		Time            time.Time `json:"time"`
		DataContentType string    `json:"datacontenttype"`
		Data            EventData `json:"data"`
	}{"1.0", e.ID, e.Type, e.Source, e.Subject, e.Time, "application/json", e.Data})
}
