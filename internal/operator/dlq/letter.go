// SPDX-License-Identifier: Apache-2.0

// Package dlq works on dead letters for operators. It peeks at those that fit a filter, takes
// exactly these off their queue, and sends copies of them to another queue or topic.
//
// A peek disturbs nothing. To take dead letters off it has to receive, and it releases those that
// were not chosen, so their delivery counts stay. It never sends a copy twice: see [Resubmission].
package dlq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/failure"
	"overdue/internal/servicebus/link"
	"overdue/scheduler"
)

// Place is a dead-letter queue, by what it belongs to.
type Place struct{ Entity, Subscription string }

const (
	subQueue = "/$DeadLetterQueue"
	between  = "/Subscriptions/"
)

// ParsePlace reads the name of a queue, or topic/Subscriptions/subscription, with or without
// /$DeadLetterQueue behind it. Errors: those of address.Parse, and for what is no such name. A URI
// is none: its host may be another than that of the namespace which is asked, and the place there
// another one.
func ParsePlace(text string) (Place, error) {
	at, err := address.Parse(text)
	switch {
	case err != nil:
		return Place{}, fmt.Errorf("this is not the name of a queue, nor topic/Subscriptions/name: %w", err)
	case strings.Contains(text, "://") || at.Name == "" || at.Node != address.Messages || at.SubQueue == address.TransferDeadLetter:
		return Place{}, fmt.Errorf("%.300q is not the name of a queue, nor topic/Subscriptions/name", text)
	}
	return Place{at.Name, at.Subscription}, nil
}

// String is the place as it is written.
func (p Place) String() string {
	if p.Subscription == "" {
		return p.Entity
	}
	return p.Entity + between + p.Subscription
}

// Path is the address of the dead-letter queue.
func (p Place) Path() string { return p.String() + subQueue }

// A Letter is a dead letter, or another message, as a peek shows it. Times are UTC; a zero one is
// not stated. Its JSON form is that of `overdue dlq`.
type Letter struct {
	Number        int64      `json:"sequenceNumber"`
	MessageID     string     `json:"messageId"`
	SessionID     *string    `json:"sessionId,omitempty"`
	PartitionKey  *string    `json:"partitionKey,omitempty"`
	CorrelationID string     `json:"correlationId,omitempty"`
	Subject       string     `json:"subject,omitempty"`
	ContentType   string     `json:"contentType,omitempty"`
	ReplyTo       string     `json:"replyTo,omitempty"`
	To            string     `json:"to,omitempty"`
	EnqueuedTime  time.Time  `json:"enqueuedTime"`
	ScheduledTime time.Time  `json:"-"` // when it becomes active, or became so
	State         link.State `json:"-"`
	TimeToLive    Span       `json:"timeToLive,omitzero"` // 0 = none of its own
	Due           time.Time  `json:"deadline,omitzero"`   // that it states, or the end of its time to live
	DeliveryCount uint32     `json:"deliveryCount"`
	Reason        string     `json:"deadLetterReason"`
	Description   string     `json:"deadLetterErrorDescription,omitempty"`
	Source        string     `json:"deadLetterSource,omitempty"`      // where it was dead-lettered, once it was forwarded from there
	Properties    Properties `json:"applicationProperties,omitempty"` // without the reason and the description

	message amqp.Message // whole
}

// A Span is written as 1m30s.
type Span struct{ time.Duration }

// MarshalText returns it as it is written.
func (s Span) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Properties are application properties as amqp.Entries has them, and text in JSON.
type Properties map[string]any

// MarshalJSON writes the values as [Text].
func (p Properties) MarshalJSON() ([]byte, error) {
	texts := map[string]string{}
	for name, v := range p {
		texts[name] = Text(v)
	}
	return json.Marshal(texts)
}

// Application properties that Service Bus gives a dead letter.
const (
	deadLetterReason      = "DeadLetterReason"
	deadLetterDescription = "DeadLetterErrorDescription"
)

// Names of a message's application properties that state a deadline.
const (
	statesDeadline = "overdue-deadline"
	statesWithin   = "overdue-within"
	statesComplete = "overdue-complete-within"
	statesExpiry   = "ce-expirytime"
)

// Parse reads an encoded message.
func Parse(encoded []byte) (*Letter, error) {
	m, err := amqp.ParseMessage(encoded)
	if err != nil {
		return nil, err
	}
	header, err := amqp.DecodeHeader(m.Header)
	if err != nil {
		return nil, err
	}
	p, err := amqp.DecodeProperties(m.Properties)
	if err != nil {
		return nil, err
	}
	l := &Letter{
		DeliveryCount: header.DeliveryCount,
		MessageID:     amqp.IDText(p.MessageID), CorrelationID: amqp.IDText(p.CorrelationID), SessionID: p.GroupID,
		Subject: given(p.Subject), ContentType: string(p.ContentType), ReplyTo: given(p.ReplyTo), To: given(p.To),
		message: m,
	}
	if r, ok := amqp.MapLookup(m.MessageAnnotations, "x-opt-sequence-number"); ok {
		l.Number = r.Long()
		if r.Err() != nil {
			return nil, fmt.Errorf("dlq: sequence number: %w", r.Err())
		}
	}
	if r, ok := amqp.MapLookup(m.MessageAnnotations, "x-opt-enqueued-time"); ok {
		l.EnqueuedTime = r.Timestamp().Time()
	}
	if l.TimeToLive.Duration, err = m.LifeSince(l.EnqueuedTime); err != nil {
		return nil, err
	}
	if r, ok := amqp.MapLookup(m.MessageAnnotations, "x-opt-scheduled-enqueue-time"); ok {
		l.ScheduledTime = r.Timestamp().Time()
	}
	if r, ok := amqp.MapLookup(m.MessageAnnotations, "x-opt-message-state"); ok {
		l.State = link.State(r.Integer())
	}
	if r, ok := amqp.MapLookup(m.MessageAnnotations, "x-opt-partition-key"); ok {
		if key := r.Text(); r.Err() == nil {
			l.PartitionKey = &key
		}
	}
	if r, ok := amqp.MapLookup(m.MessageAnnotations, "x-opt-deadletter-source"); ok {
		l.Source, _ = r.Value().(string)
	}
	l.Properties = maps.Collect(amqp.Entries(m.ApplicationProperties))
	l.Reason, l.Description = l.takeText(deadLetterReason), l.takeText(deadLetterDescription)
	l.Due = l.due()
	return l, nil
}

// takeText takes a text out of the properties.
func (l *Letter) takeText(name string) string {
	s, ok := l.Properties[name].(string)
	if ok {
		delete(l.Properties, name)
	}
	return s
}

// stated is the deadline that the message states, as proxy and monitor read it.
func (l *Letter) stated() (at time.Time, within time.Duration) {
	at, within, err := scheduler.StatedDeadline(l.property)
	if err != nil {
		return time.Time{}, 0 // what cannot be read states nothing
	}
	return at, within
}

func (l *Letter) property(name string) any { return amqp.TimeOrSpan(l.Properties[name]) }

// statesCompletion reports whether the message says by when it has to be completed.
func (l *Letter) statesCompletion() bool {
	within, err := scheduler.StatedCompletion(l.property)
	return err == nil && within > 0
}

// statedWithin is how long after its enqueued-time the stated deadline was; 0 = it states none, or
// one that was over by then.
func (l *Letter) statedWithin() time.Duration {
	at, within := l.stated()
	if !at.IsZero() && !l.EnqueuedTime.IsZero() {
		within = at.Sub(l.EnqueuedTime).Truncate(time.Millisecond)
	}
	if within < time.Millisecond || within > amqp.LongestLife {
		return 0
	}
	return within
}

// due is when the message was to be received. This is the deadline that it states, or the end of
// its time to live if that is earlier.
func (l *Letter) due() time.Time {
	at, within := l.stated()
	begin := l.EnqueuedTime
	if l.State == link.Scheduled {
		begin = l.ScheduledTime
	}
	for _, life := range []time.Duration{within, l.TimeToLive.Duration} {
		if life <= 0 || begin.IsZero() {
			continue
		}
		if end := begin.Add(life); at.IsZero() || end.Before(at) {
			at = end
		}
	}
	return at
}

// BodyBytes is the body as bytes: data as they are, a value as text.
func (l *Letter) BodyBytes() []byte {
	body := l.Body()
	if b, isBytes := body.([]byte); isBytes {
		return b
	}
	return []byte(Text(body))
}

// Body is the body as text or bytes where it is data, and as a value where it is one. A value that
// cannot be decoded comes as its bytes; sections of sequences are a list.
func (l *Letter) Body() any {
	if v, ok := l.message.Value(); ok {
		encoded := v.Rest()
		value := v.Value()
		if v.Err() != nil {
			return encoded
		}
		return value
	}
	var body []byte
	for part, err := range amqp.DataSections(l.message.Body) {
		if err != nil { // sequences, which nobody sends to Service Bus but may
			return l.message.Body
		}
		body = append(body, part...)
	}
	return body
}

// page is how many messages one peek asks for; Service Bus gives no more than 250 ("Azure Service
// Bus quotas" in Microsoft's documentation).
const page = 250

// Walk shows f the dead letters of a place from a sequence number on, in the order of these, until
// f returns false.
func Walk(ctx context.Context, links *link.Namespace, place Place, from int64, f func(*Letter) (more bool)) error {
	return WalkAt(ctx, links, place.Path(), from, f)
}

// WalkAt is Walk for the messages of any queue, by its address.
func WalkAt(ctx context.Context, links *link.Namespace, path string, from int64, f func(*Letter) (more bool)) error {
	var unreadable error
	err := walk(ctx, links, path, from, func(l *Letter, err error) bool {
		if err != nil {
			unreadable = fmt.Errorf("dlq: a message of %s: %w", path, err)
		}
		return err == nil && f(l)
	})
	return errors.Join(err, unreadable)
}

// walk shows f every message, and an error in place of one that cannot be read.
func walk(ctx context.Context, links *link.Namespace, path string, from int64, f func(*Letter, error) (more bool)) error {
	p, err := links.Peeker(ctx, path)
	if err != nil {
		return err
	}
	for {
		ms, err := p.PeekEncoded(ctx, from, page)
		if err != nil {
			return err // it has closed p
		}
		for _, encoded := range ms {
			l, err := Parse(encoded)
			if !f(l, err) {
				p.Close(ctx)
				return nil
			}
			if err == nil {
				from = max(from, l.Number+1)
			}
		}
		if len(ms) == 0 {
			p.Close(ctx)
			return nil
		}
	}
}

// given is what p points to, or nothing.
func given[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// Failure turns an error of reading a place into one that says what to do. nil stays nil.
func Failure(place Place, err error) error {
	if err == nil {
		return nil
	}
	if sending, ok := errors.AsType[*sendError](err); ok {
		return failure.Sending(sending.to, sending.err)
	}
	if unfit, ok := errors.AsType[*unfitError](err); ok {
		return unfit
	}
	if errors.Is(err, context.Canceled) {
		return errors.New("interrupted before the end")
	}
	if unreachable := failure.Unreachable(err); unreachable != nil {
		return unreachable
	}
	switch condition := link.Condition(err); {
	case condition == link.ConditionNotAllowed:
		return NoMessages(place)
	case condition == link.ConditionNotFound && place.Subscription == "":
		return fmt.Errorf("there is no queue %q; correct the name, or write topic/Subscriptions/name for a subscription", place.Entity)
	case condition == link.ConditionNotFound:
		return fmt.Errorf("there is no subscription %q", place)
	case link.Unauthorized(err):
		return failure.NoRightToListen(place.String())
	}
	return fmt.Errorf("read %s: %s", place, failure.Reason(err))
}

// NoMessages is the error of a place that has no messages of its own, as a topic.
func NoMessages(place Place) error {
	return fmt.Errorf("%s is a topic, or another entity without messages; name a subscription, as %s/Subscriptions/name", place, place)
}
