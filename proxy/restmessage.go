// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// Annotations by which Service Bus knows these properties on the wire.
const (
	annotationPartitionKey         = "x-opt-partition-key"
	annotationViaPartitionKey      = "x-opt-via-partition-key"
	annotationScheduledEnqueueTime = "x-opt-scheduled-enqueue-time"
)

// defaultPriority is the one that AMQP leaves out of a header.
const defaultPriority = 4

// A restMessage is one message as it came through the REST door.
type restMessage struct {
	body       []byte
	broker     brokerProperties
	properties map[string]any // application properties
}

// parseSingle reads a request whose body is one message.
func parseSingle(h http.Header, body []byte) ([]*restMessage, error) {
	m := &restMessage{body: body}
	var err error
	if m.broker, err = brokerPropertiesOf(h); err != nil {
		return nil, err
	}
	if m.broker.contentType == "" {
		m.broker.contentType = h.Get("Content-Type")
	}
	if m.properties, err = customProperties(h); err != nil {
		return nil, err
	}
	return []*restMessage{m}, m.complete()
}

// complete checks the message and gives it the message-id that the service would give it.
func (m *restMessage) complete() error {
	if err := m.broker.check(); err != nil {
		return err
	}
	if m.broker.messageID == "" {
		m.broker.messageID = newMessageID()
	}
	return nil
}

// known is what the send path has to know of the message.
func (m *restMessage) known() *message {
	return &message{
		ID: m.broker.messageID, SessionID: m.broker.sessionID, PartitionKey: m.broker.partitionKey,
		TTL: m.broker.timeToLive, ScheduledEnqueueTime: m.broker.scheduledEnqueueTime,
		Property: func(name string) any { return m.properties[name] },
	}
}

// amqp is the message on the wire, with the TTL that is stamped on it, if any.
func (m *restMessage) amqp(stamp time.Duration) *azservicebus.AMQPAnnotatedMessage {
	b := &m.broker
	out := &azservicebus.AMQPAnnotatedMessage{
		ApplicationProperties: m.properties,
		Body:                  azservicebus.AMQPAnnotatedMessageBody{Data: [][]byte{m.body}},
		Properties: &azservicebus.AMQPAnnotatedMessageProperties{
			MessageID:      b.messageID,
			ContentType:    optional(b.contentType),
			GroupID:        optional(b.sessionID),
			ReplyTo:        optional(b.replyTo),
			ReplyToGroupID: optional(b.replyToSessionID),
			Subject:        optional(b.label),
			To:             optional(b.to),
		},
	}
	if b.correlationID != "" {
		out.Properties.CorrelationID = b.correlationID
	}
	ttl := b.timeToLive
	if stamp > 0 {
		ttl = stamp
	}
	if ttl > 0 {
		out.Header = &azservicebus.AMQPAnnotatedMessageHeader{TTL: ttl, Priority: defaultPriority}
	}
	annotations := map[any]any{}
	if b.partitionKey != "" {
		annotations[annotationPartitionKey] = b.partitionKey
	}
	if b.viaPartitionKey != "" {
		annotations[annotationViaPartitionKey] = b.viaPartitionKey
	}
	if !b.scheduledEnqueueTime.IsZero() {
		annotations[annotationScheduledEnqueueTime] = b.scheduledEnqueueTime
	}
	out.MessageAnnotations = annotations
	return out
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// newMessageID is a random UUID, version 4.
func newMessageID() string {
	var u [16]byte
	_, _ = rand.Read(u[:]) // it never fails, says its contract
	u[6] = u[6]&0x0f | 0x40
	u[8] = u[8]&0x3f | 0x80
	s := hex.EncodeToString(u[:])
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}
