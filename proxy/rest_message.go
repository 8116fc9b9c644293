// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"cmp"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

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
func amqpOf(m *rest.Message, known *message) *azservicebus.AMQPAnnotatedMessage {
	b := &m.Broker
	out := &azservicebus.AMQPAnnotatedMessage{
		ApplicationProperties: m.Properties,
		Body:                  azservicebus.AMQPAnnotatedMessageBody{Data: [][]byte{m.Body}},
		Properties: &azservicebus.AMQPAnnotatedMessageProperties{
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
		out.Header = &azservicebus.AMQPAnnotatedMessageHeader{TTL: time.Duration(header.TTL) * time.Millisecond, Priority: defaultPriority}
	}
	if stated.HasCreationTime {
		created, expires := stated.CreationTime.Time(), stated.AbsoluteExpiryTime.Time()
		out.Properties.CreationTime, out.Properties.AbsoluteExpiryTime = &created, &expires
	}
	annotations := map[any]any{}
	if b.PartitionKey != "" {
		annotations[annotationPartitionKey] = b.PartitionKey
	}
	if b.ViaPartitionKey != "" {
		annotations[annotationViaPartitionKey] = b.ViaPartitionKey
	}
	if !b.ScheduledEnqueueTime.IsZero() {
		annotations[annotationScheduledEnqueueTime] = b.ScheduledEnqueueTime
	}
	out.MessageAnnotations = annotations
	return out
}
