// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"context"
	"maps"

	"github.com/Azure/go-amqp"
)

// deadLetter peeks at the message of e. It returns nil if that is no longer a dead letter. A
// receiver of the SDK would panic where the reason of the dead letter is no string.
func (f *Forward) deadLetter(ctx context.Context, e Event) (*amqp.Message, error) {
	p, err := f.cfg.Links.Peeker(ctx, e.Data.Path()+"/$DeadLetterQueue")
	if err != nil {
		return nil, err
	}
	defer p.Close(ctx)
	encoded, err := p.PeekEncoded(ctx, e.Data.SequenceNumber, 1)
	if err != nil || len(encoded) == 0 {
		return nil, err
	}
	m := &amqp.Message{}
	if err := m.UnmarshalBinary(encoded[0]); err != nil || m.Annotations["x-opt-sequence-number"] != e.Data.SequenceNumber {
		return nil, err
	}
	if m.Properties == nil {
		m.Properties = &amqp.MessageProperties{}
	}
	return m, nil
}

// copyOf returns a copy of m to forward: without the properties of dead-lettering, without its time
// to live, which is over, and with its origin.
func copyOf(m *amqp.Message, e Event) *amqp.Message {
	properties := *m.Properties
	properties.AbsoluteExpiryTime, properties.CreationTime = nil, nil // go with the time to live
	c := &amqp.Message{
		Data:                  m.Data,
		Sequence:              m.Sequence,
		Value:                 m.Value,
		Footer:                m.Footer,
		ApplicationProperties: maps.Clone(m.ApplicationProperties),
		Properties:            &properties,
	}
	if m.Header != nil {
		c.Header = &amqp.MessageHeader{Durable: m.Header.Durable, Priority: m.Header.Priority}
	}
	if c.ApplicationProperties == nil {
		c.ApplicationProperties = map[string]any{}
	}
	for _, name := range append(deadlineProperties, "DeadLetterReason", "DeadLetterErrorDescription") {
		delete(c.ApplicationProperties, name)
	}
	c.ApplicationProperties[propertyMissedOn] = e.Data.Path()
	c.ApplicationProperties[propertyMissedDeadline] = e.Data.Deadline
	c.ApplicationProperties[propertyMissedEvent] = e.ID
	if key, ok := m.Annotations["x-opt-partition-key"].(string); ok {
		c.Annotations = amqp.Annotations{"x-opt-partition-key": key}
	}
	return c
}
