// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/cenkalti/backoff/v5"

	"overdue/internal/escape"
	"overdue/internal/servicebus/sdk"
	"overdue/internal/traceparent"
)

// sendTime bounds one attempt to send an event to an entity.
const sendTime = 5 * time.Second

type serviceBus struct {
	name, entity string
	client       *sdk.Client
	sender       *sdk.Sender
}

// NewServiceBus makes an Alerter that sends each event to a queue or topic as a CloudEvent. The id
// of the event is the message id, so that duplicate detection drops a second delivery. The type is
// the subject, for rules of subscriptions.
func NewServiceBus(name string, client *sdk.Client, entity string) Alerter {
	return &serviceBus{cmp.Or(name, "servicebus"), entity, client, client.NewSender(entity)}
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
		m.SessionID = &e.Data.SessionID
	}
	if err := a.sender.Send(ctx, m); err != nil {
		err = fmt.Errorf("alert: send to %s: %w", a.entity, err)
		if known := (*azservicebus.Error)(nil); errors.As(err, &known) && known.Code == azservicebus.CodeNotFound {
			return backoff.Permanent(err)
		}
		return err
	}
	return nil
}

// eventMessage returns e as a message.
func eventMessage(e Event) (*azservicebus.Message, error) {
	body, err := json.Marshal(e)
	body = escape.JSON(body)
	if err != nil {
		return nil, backoff.Permanent(err)
	}
	m := &azservicebus.Message{
		Body: body, ContentType: to.Ptr("application/cloudevents+json"), MessageID: &e.ID, Subject: &e.Type,
		ApplicationProperties: map[string]any{"entity": e.Data.Entity, "messageId": e.Data.MessageID},
	}
	if e.Data.CorrelationID != "" {
		m.CorrelationID = &e.Data.CorrelationID
	}
	if trace := traceparent.Valid(e.Traceparent); trace != "" { // as OpenTelemetry and the SDKs of Azure have it
		m.ApplicationProperties[traceparent.Property], m.ApplicationProperties[traceparent.DiagnosticID] = trace, trace
	}
	return m, nil
}
