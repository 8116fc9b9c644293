// SPDX-License-Identifier: Apache-2.0

package entities

import (
	"encoding/xml"
	"errors"
	"fmt"
	"time"

	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/duration"
)

// A document is an answer of the administration API: the entry of an entity, or a feed of entries.
type document struct {
	XMLName xml.Name
	Title   string `xml:"title"`
	Content struct {
		Queue        *description `xml:"QueueDescription"`
		Topic        *description `xml:"TopicDescription"`
		Subscription *description `xml:"SubscriptionDescription"`
		Namespace    *struct {
			MessagingSKU string
		} `xml:"NamespaceInfo"`
	} `xml:"content"`
	Entries []document `xml:"entry"`
}

// A description has the settings of a queue, topic or subscription. What is not said is the default,
// which is the zero value of all of them.
type description struct {
	LockDuration                     string
	DefaultMessageTimeToLive         string
	AutoDeleteOnIdle                 string
	RequiresSession                  bool
	RequiresDuplicateDetection       bool
	DeadLetteringOnMessageExpiration bool
	EnablePartitioning               bool
	ForwardTo                        string
	ForwardDeadLetteredMessagesTo    string
	MaxMessageSizeInKilobytes        int64
	Status                           string
	MaxDeliveryCount                 int
	CreatedAt, UpdatedAt             string
	CountDetails                     struct {
		ActiveMessageCount             int64
		ScheduledMessageCount          int64
		DeadLetterMessageCount         int64
		TransferDeadLetterMessageCount int64
	}
}

func parse(body []byte) (*document, error) {
	var doc document
	if err := xml.Unmarshal(body, &doc); err != nil {
		return nil, fmt.Errorf("the answer is not one of the administration API: %w", err)
	}
	if name := doc.XMLName.Local; name != "entry" && name != "feed" {
		return nil, fmt.Errorf("the answer is not one of the administration API: it is a document of %.50q", name)
	}
	return &doc, nil
}

// info is what the document says of a queue or topic.
func (doc *document) info() (info Info, err error) {
	d := doc.Content.Queue
	info.Kind = Queue
	switch {
	case doc.Content.Topic != nil:
		d, info.Kind = doc.Content.Topic, Topic
	case d == nil && (doc.XMLName.Local == "feed" || doc.Content.Subscription != nil):
		// The service answers with a feed of all that is listed for what it does not have.
		return Info{}, ErrNotFound
	case d == nil:
		return Info{}, errors.New("the answer has no description of a queue or topic")
	}
	info.RequiresSession = d.RequiresSession
	info.RequiresDuplicateDetection = d.RequiresDuplicateDetection
	info.DeadLetteringOnMessageExpiration = d.DeadLetteringOnMessageExpiration
	info.Partitioned = d.EnablePartitioning
	info.ForwardTo, info.ForwardDeadLetteredMessagesTo = Target(d.ForwardTo), Target(d.ForwardDeadLetteredMessagesTo)
	info.MaxMessageSize = min(max(d.MaxMessageSizeInKilobytes, 0), 1<<30) << 10
	info.CreatedAt, info.UpdatedAt = instant(d.CreatedAt), instant(d.UpdatedAt)
	info.DefaultMessageTimeToLive, info.LockDuration, info.AutoDeleteOnIdle, err = d.durations()
	return info, err
}

// subscription is what an entry says of a subscription.
func (doc *document) subscription() (s Subscription, err error) {
	d := doc.Content.Subscription
	if d == nil || doc.Title == "" {
		return s, errors.New("the answer has an entry without a subscription")
	}
	s.Name = doc.Title
	s.RequiresSession = d.RequiresSession
	s.DeadLetteringOnMessageExpiration = d.DeadLetteringOnMessageExpiration
	s.ForwardTo, s.ForwardDeadLetteredMessagesTo = Target(d.ForwardTo), Target(d.ForwardDeadLetteredMessagesTo)
	s.CreatedAt, s.UpdatedAt = instant(d.CreatedAt), instant(d.UpdatedAt)
	s.DefaultMessageTimeToLive, s.LockDuration, s.AutoDeleteOnIdle, err = d.durations()
	return s, err
}

// instant is a time of the administration API. One that is not stated, or not as it should be, is zero: nothing rests on it but what is
// known better with it. So is one before the Unix epoch, with which the service says never.
func instant(text string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || t.Unix() <= 0 {
		return time.Time{}
	}
	return t.UTC()
}

// forever is from when on a span has no end. Service Bus says it with one of 29,000 years.
const forever = 100 * 365 * 24 * time.Hour

func (d *description) durations() (timeToLive, lock, idle time.Duration, err error) {
	for _, f := range []struct {
		to   *time.Duration
		name string
		text string
	}{
		{&timeToLive, "DefaultMessageTimeToLive", d.DefaultMessageTimeToLive},
		{&lock, "LockDuration", d.LockDuration},
		{&idle, "AutoDeleteOnIdle", d.AutoDeleteOnIdle},
	} {
		if f.text == "" {
			continue
		}
		span, ok := duration.ParseISO8601(f.text)
		if !ok {
			// To take it for unlimited would leave messages unwatched.
			return 0, 0, 0, fmt.Errorf("the answer has a %s of %.50q, which is no duration", f.name, f.text)
		}
		if span < forever {
			*f.to = span
		}
	}
	return timeToLive, lock, idle, nil
}

// Target is the name of the entity that a setting such as ForwardTo leads to. The service writes it as a URL. What is no address
// comes as it is, and never as nothing: the entity forwards all the same.
func Target(text string) string {
	at, err := address.Parse(text)
	if err != nil || at.String() == "" {
		return text
	}
	return at.String()
}
