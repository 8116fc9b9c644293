// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/amqp"
	"overdue/internal/servicebus/rest"
)

// Annotations by which Service Bus knows these properties on the wire.
const (
	annotationPartitionKey         = "x-opt-partition-key"
	annotationViaPartitionKey      = "x-opt-via-partition-key"
	annotationScheduledEnqueueTime = "x-opt-scheduled-enqueue-time"
)

// defaultPriority is the one that AMQP leaves out of a header.
const defaultPriority = 4

// isOurs reports whether a property is one that states a deadline. Those are found however
// they are spelled, and have one spelling on the message, which the monitor reads as well.
func isOurs(property string) bool {
	return strings.HasPrefix(property, "overdue-") || property == "ce-expirytime"
}

// knownOf is what the send path has to know of the message.
func knownOf(m *rest.Message) *message {
	return &message{
		ID: m.Broker.MessageID, SessionID: m.Broker.SessionID, PartitionKey: m.Broker.PartitionKey,
		Size: int64(len(m.Body)),
		TTL:  m.Broker.TimeToLive, ScheduledEnqueueTime: m.Broker.ScheduledEnqueueTime,
		Property: func(name string) any { return m.Properties[name] },
	}
}

// amqpOf is the message on the wire, with the TTL that is stamped on it, if any.
func amqpOf(m *rest.Message, stamp time.Duration) *azservicebus.AMQPAnnotatedMessage {
	b := &m.Broker
	out := &azservicebus.AMQPAnnotatedMessage{
		ApplicationProperties: m.Properties,
		Body:                  azservicebus.AMQPAnnotatedMessageBody{Data: [][]byte{m.Body}},
		Properties: &azservicebus.AMQPAnnotatedMessageProperties{
			MessageID:      b.MessageID,
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
	if stamp > 0 {
		ttl = stamp
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
