// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"time"
	"unicode/utf8"

	"overdue/internal/broker/queue"
)

// A messageForm is one message as GET /_overdue/messages shows it.
type messageForm struct {
	SequenceNumber             int64          `json:"sequenceNumber"`
	MessageID                  string         `json:"messageId"`
	SessionID                  string         `json:"sessionId,omitempty"`
	CorrelationID              string         `json:"correlationId,omitempty"`
	Subject                    string         `json:"subject,omitempty"`
	To                         string         `json:"to,omitempty"`
	ReplyTo                    string         `json:"replyTo,omitempty"`
	ContentType                string         `json:"contentType,omitempty"`
	State                      string         `json:"state"` // Active, Deferred or Scheduled
	DeliveryCount              int            `json:"deliveryCount"`
	EnqueuedTime               time.Time      `json:"enqueuedTime"`
	ExpiresAt                  *time.Time     `json:"expiresAt,omitempty"`
	ScheduledEnqueueTime       *time.Time     `json:"scheduledEnqueueTime,omitempty"`
	EnqueuedSequenceNumber     int64          `json:"enqueuedSequenceNumber,omitempty"`
	DeadLetterReason           string         `json:"deadLetterReason,omitempty"`
	DeadLetterErrorDescription string         `json:"deadLetterErrorDescription,omitempty"`
	DeadLetterSource           string         `json:"deadLetterSource,omitempty"`
	DeadLetteredTime           *time.Time     `json:"deadLetteredTime,omitempty"`
	ApplicationProperties      map[string]any `json:"applicationProperties,omitempty"`
	Body                       string         `json:"body,omitempty"`      // where it is text
	BodyBytes                  []byte         `json:"bodyBytes,omitempty"` // where it is not; base64
}

func formOf(v *queue.View) (*messageForm, error) {
	s, err := show(v)
	if err != nil {
		return nil, err
	}
	f := &messageForm{
		SequenceNumber: v.SequenceNumber, MessageID: v.MessageID, SessionID: v.SessionID,
		CorrelationID: s.broker.CorrelationID, Subject: s.broker.Label, To: s.broker.To, ReplyTo: s.broker.ReplyTo,
		ContentType: s.broker.ContentType, State: s.stamps.State, DeliveryCount: v.DeliveryCount,
		EnqueuedTime: v.EnqueuedTime, ExpiresAt: given(v.ExpiresAt), ScheduledEnqueueTime: given(v.ScheduledEnqueueTime),
		EnqueuedSequenceNumber: v.EnqueuedSequenceNumber,
		DeadLetterReason:       v.DeadLetterReason, DeadLetterErrorDescription: v.DeadLetterErrorDescription,
		DeadLetterSource: v.DeadLetterSource, DeadLetteredTime: given(v.DeadLetteredTime),
	}
	for _, p := range s.properties {
		if f.ApplicationProperties == nil {
			f.ApplicationProperties = make(map[string]any)
		}
		f.ApplicationProperties[p.name] = p.value
	}
	if utf8.Valid(s.body) {
		f.Body = string(s.body)
	} else {
		f.BodyBytes = s.body
	}
	return f, nil
}

// given is nil for the zero time.
func given(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
