// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/cenkalti/backoff/v5"

	"overdue/internal/escape"
	"overdue/internal/servicebus/link"
	"overdue/internal/traceparent"
)

// sendTime bounds one attempt to send an event to an entity.
const sendTime = 5 * time.Second

type serviceBus struct {
	name, entity string
	links        *link.Namespace
}

// NewServiceBus makes an Alerter that sends each event to a queue or topic as a CloudEvent. The id
// of the event is the message id, so that duplicate detection drops a second delivery. The type is
// the subject, for rules of subscriptions.
func NewServiceBus(name string, links *link.Namespace, entity string) Alerter {
	return &serviceBus{
		name:   cmp.Or(name, "servicebus"),
		entity: entity,
		links:  links,
	}
}

func (a *serviceBus) Name() string { return a.name }

func (a *serviceBus) Alert(ctx context.Context, e Event) error {
	m, err := eventMessage(e)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	if e.Data.SessionID != "" {
		m.Properties.GroupID = &e.Data.SessionID
	}
	if err := send(ctx, a.links, a.entity, m); err != nil {
		err = fmt.Errorf("alert: send to %s: %w", a.entity, err)
		if link.Condition(err) == link.ConditionNotFound {
			return backoff.Permanent(err)
		}
		return err
	}
	return nil
}

// send sends m to a queue or topic.
func send(ctx context.Context, links *link.Namespace, entity string, m *amqp.Message) error {
	encoded, err := m.MarshalBinary()
	if err != nil {
		return err
	}
	return links.Send(ctx, entity, encoded)
}

// eventMessage returns e as a message.
func eventMessage(e Event) (*amqp.Message, error) {
	body, err := json.Marshal(e)
	body = escape.JSON(body)
	if err != nil {
		return nil, backoff.Permanent(err)
	}
	contentType := "application/cloudevents+json"
	m := &amqp.Message{
		Data: [][]byte{body},
		Properties: &amqp.MessageProperties{
			MessageID:   e.ID,
			Subject:     &e.Type,
			ContentType: &contentType,
		},
		ApplicationProperties: map[string]any{},
	}
	for name, value := range e.Data.Labels {
		m.ApplicationProperties[name] = value
	}
	m.ApplicationProperties["entity"], m.ApplicationProperties["messageId"] = e.Data.Entity, e.Data.MessageID
	if e.Data.CorrelationID != "" {
		m.Properties.CorrelationID = e.Data.CorrelationID
	}
	if trace := traceparent.Valid(e.Traceparent); trace != "" { // as OpenTelemetry and the SDKs of Azure have it
		m.ApplicationProperties[traceparent.Property], m.ApplicationProperties[traceparent.DiagnosticID] = trace, trace
	}
	return m, nil
}
