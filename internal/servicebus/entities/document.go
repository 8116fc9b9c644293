// SPDX-License-Identifier: Apache-2.0

package entities

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"time"

	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/atom"
	"overdue/internal/servicebus/duration"
)

// A description has the settings of a queue, topic or subscription. A setting that the answer lacks
// has its default, which is the zero value of all of them.
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
	MaxDeliveryCount                 int64
	CreatedAt, UpdatedAt             time.Time
	Counts                           Counts
}

func parse(body []byte) (atom.Answer, error) {
	answer, err := atom.ParseAnswer(bytes.NewReader(atom.Holding(body)))
	switch {
	case err != nil:
		return atom.Answer{}, fmt.Errorf("the answer is not one of the administration API: %w", err)
	case answer.IsFeed && answer.Title == atom.PublicServices:
		return atom.Answer{}, ErrNotFound
	}
	return answer, nil
}

// describe reads a description.
func describe(n *atom.Node) (d description, err error) {
	flag := func(name string) bool {
		text := n.ChildText(name)
		if text == "" {
			return false
		}
		is, fault := strconv.ParseBool(text)
		if fault != nil {
			err = errors.Join(err, fmt.Errorf("the answer has a %s of %.50q, which is neither true nor false", name, text))
		}
		return is
	}
	number := func(n *atom.Node, name string) int64 {
		text := n.ChildText(name)
		if text == "" {
			return 0
		}
		i, fault := strconv.ParseInt(text, 10, 64)
		if fault != nil {
			err = errors.Join(err, fmt.Errorf("the answer has a %s of %.50q, which is no number", name, text))
		}
		return i
	}
	d = description{
		LockDuration:                     n.ChildText("LockDuration"),
		DefaultMessageTimeToLive:         n.ChildText("DefaultMessageTimeToLive"),
		AutoDeleteOnIdle:                 n.ChildText("AutoDeleteOnIdle"),
		RequiresSession:                  flag("RequiresSession"),
		RequiresDuplicateDetection:       flag("RequiresDuplicateDetection"),
		DeadLetteringOnMessageExpiration: flag("DeadLetteringOnMessageExpiration"),
		EnablePartitioning:               flag("EnablePartitioning"),
		ForwardTo:                        n.ChildText(atom.ForwardTo),
		ForwardDeadLetteredMessagesTo:    n.ChildText(atom.ForwardDeadLettersTo),
		MaxMessageSizeInKilobytes:        number(n, "MaxMessageSizeInKilobytes"),
		Status:                           n.ChildText("Status"),
		MaxDeliveryCount:                 number(n, "MaxDeliveryCount"),
		CreatedAt:                        instant(n.ChildText("CreatedAt")),
		UpdatedAt:                        instant(n.ChildText("UpdatedAt")),
	}
	if c := n.Child("CountDetails"); c != nil {
		d.Counts = Counts{
			Active: number(c, "ActiveMessageCount"), Scheduled: number(c, "ScheduledMessageCount"),
			DeadLetter: number(c, "DeadLetterMessageCount"), TransferDeadLetter: number(c, "TransferDeadLetterMessageCount"),
		}
	}
	return d, err
}

// entityOf reads what an answer says of a queue or topic.
func entityOf(answer atom.Answer) (info Info, d description, err error) {
	if answer.IsFeed {
		// The service answers with a feed of all that is listed for what it does not have.
		return Info{}, d, ErrNotFound
	}
	n := answer.Entries[0].Description
	switch {
	case n != nil && n.Name.Local == "QueueDescription":
		info.Kind = Queue
	case n != nil && n.Name.Local == "TopicDescription":
		info.Kind = Topic
	case n != nil && n.Name.Local == "SubscriptionDescription":
		return Info{}, d, ErrNotFound
	default:
		return Info{}, d, errors.New("the answer has no description of a queue or topic")
	}
	if d, err = describe(n); err != nil {
		return Info{}, d, err
	}
	info.RequiresSession = d.RequiresSession
	info.RequiresDuplicateDetection = d.RequiresDuplicateDetection
	info.DeadLetteringOnMessageExpiration = d.DeadLetteringOnMessageExpiration
	info.Partitioned = d.EnablePartitioning
	info.ForwardTo, info.ForwardDeadLetteredMessagesTo = Target(d.ForwardTo), Target(d.ForwardDeadLetteredMessagesTo)
	info.MaxMessageSize = min(max(d.MaxMessageSizeInKilobytes, 0), 1<<30) << 10
	info.CreatedAt, info.UpdatedAt = d.CreatedAt, d.UpdatedAt
	info.DefaultMessageTimeToLive, info.LockDuration, info.AutoDeleteOnIdle, err = d.durations()
	return info, d, err
}

// subscriptionOf reads what an entry says of a subscription.
func subscriptionOf(e atom.Entry) (s SubscriptionDetails, err error) {
	if e.Description == nil || e.Description.Name.Local != "SubscriptionDescription" || e.Title == "" {
		return s, errors.New("the answer has an entry without a subscription")
	}
	d, err := describe(e.Description)
	if err != nil {
		return s, err
	}
	s.Name = e.Title
	s.RequiresSession = d.RequiresSession
	s.DeadLetteringOnMessageExpiration = d.DeadLetteringOnMessageExpiration
	s.ForwardTo, s.ForwardDeadLetteredMessagesTo = Target(d.ForwardTo), Target(d.ForwardDeadLetteredMessagesTo)
	s.CreatedAt, s.UpdatedAt = d.CreatedAt, d.UpdatedAt
	s.Status, s.MaxDeliveryCount, s.Counts = d.Status, int(d.MaxDeliveryCount), d.Counts
	s.DefaultMessageTimeToLive, s.LockDuration, s.AutoDeleteOnIdle, err = d.durations()
	return s, err
}

// instant reads a time of the administration API. It is zero for a time that is missing or
// malformed, since callers can do without it, and for one before the Unix epoch, with which the
// service says never.
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

// Target is the name of the entity that a setting such as ForwardTo leads to. The service writes it
// as a URL. Text that is no address comes as it is, and never empty: the entity forwards all the
// same.
func Target(text string) string {
	at, err := address.Parse(text)
	if err != nil || at.String() == "" {
		return text
	}
	return at.String()
}
