// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"cmp"
	"strings"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"overdue/internal/amqp"
	"overdue/internal/servicebus/rest"
)

// Annotations that carry these properties on the wire.
const (
	annotationPartitionKey         = "x-opt-partition-key"
	annotationViaPartitionKey      = "x-opt-via-partition-key"
	annotationScheduledEnqueueTime = "x-opt-scheduled-enqueue-time"
)

// defaultPriority is AMQP's default, which a header omits.
const defaultPriority = 4

// isOurs reports whether a property states a deadline. Such properties match in any case, and get
// the one spelling on the message that the monitor reads.
func isOurs(property string) bool {
	return strings.HasPrefix(property, "overdue-") || property == "ce-expirytime"
}

// knownOf returns the parts of the message that the send path needs.
func knownOf(m *rest.Message) *message {
	return &message{
		ID: m.Broker.MessageID, SessionID: m.Broker.SessionID,
		Size: int64(len(m.Body)),
		TTL:  m.Broker.TimeToLive, ScheduledEnqueueTime: m.Broker.ScheduledEnqueueTime,
		Property: func(name string) any { return m.Properties[name] },
	}
}

// amqpOf returns the message for the wire, with the stamped TTL, if any. A message without an id
// gets one even where no companion names it, as every message does that the REST API takes.
func amqpOf(m *rest.Message, known *message) *goamqp.Message {
	b := &m.Broker
	out := &goamqp.Message{
		ApplicationProperties: m.Properties,
		Data:                  [][]byte{m.Body},
		Properties: &goamqp.MessageProperties{
			MessageID:      cmp.Or(b.MessageID, known.GivenID, newMessageID()),
			ContentType:    amqp.Optional(b.ContentType),
			GroupID:        amqp.Optional(b.SessionID),
			ReplyTo:        amqp.Optional(b.ReplyTo),
			ReplyToGroupID: amqp.Optional(b.ReplyToSessionID),
			Subject:        amqp.Optional(b.Label),
			To:             amqp.Optional(b.To),
		},
	}
	if b.CorrelationID != "" {
		out.Properties.CorrelationID = b.CorrelationID
	}
	ttl := b.TimeToLive
	if known.Stamp > 0 {
		ttl = known.Stamp
	}
	var header amqp.Header
	var stated amqp.Properties
	amqp.StateLife(&header, &stated, ttl, time.Now())
	if header.HasTTL {
		out.Header = &goamqp.MessageHeader{TTL: time.Duration(header.TTL) * time.Millisecond, Priority: defaultPriority}
	}
	if stated.HasCreationTime {
		created, expires := stated.CreationTime.Time(), stated.AbsoluteExpiryTime.Time()
		out.Properties.CreationTime, out.Properties.AbsoluteExpiryTime = &created, &expires
	}
	out.Annotations = goamqp.Annotations{}
	if b.PartitionKey != "" {
		out.Annotations[annotationPartitionKey] = b.PartitionKey
	}
	if b.ViaPartitionKey != "" {
		out.Annotations[annotationViaPartitionKey] = b.ViaPartitionKey
	}
	if !b.ScheduledEnqueueTime.IsZero() {
		out.Annotations[annotationScheduledEnqueueTime] = b.ScheduledEnqueueTime
	}
	return out
}
