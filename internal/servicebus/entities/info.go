// SPDX-License-Identifier: Apache-2.0

// Package entities knows how the queues and topics of a namespace were made.
//
// A [Source] is asked, and a [Store] remembers what it said: a send must not wait for
// it, and the names come from outside.
package entities

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Kind says what a name is the name of.
type Kind uint8

// The kinds of entities that messages are sent to.
const (
	Queue Kind = iota + 1
	Topic
)

func (k Kind) String() string {
	switch k {
	case Queue:
		return "queue"
	case Topic:
		return "topic"
	}
	return "unknown"
}

// Info is how a queue or topic was made. A setting that only a topic's subscriptions have is the
// zero value there.
type Info struct {
	Kind Kind

	DefaultMessageTimeToLive time.Duration // 0 = unlimited
	LockDuration             time.Duration
	AutoDeleteOnIdle         time.Duration // 0 = never
	MaxMessageSize           int64         // bytes; 0 = not stated

	// By the clock of the namespace; zero = not stated. An entity that is deleted and created again
	// under its name has a later time.
	CreatedAt time.Time
	UpdatedAt time.Time // when any of its settings was last changed, or it was made

	RequiresSession                  bool
	RequiresDuplicateDetection       bool
	DeadLetteringOnMessageExpiration bool
	Partitioned                      bool

	// Where messages and dead letters go on to: a name in the namespace, "" = they stay.
	ForwardTo, ForwardDeadLetteredMessagesTo string

	// Subscriptions of a topic, in the order of their names. They are shared and MUST NOT be changed.
	Subscriptions []Subscription
}

// LockDurationOf is that of the queue, or of a subscription of the topic.
func (i *Info) LockDurationOf(subscription string) time.Duration {
	for _, s := range i.Subscriptions {
		if strings.EqualFold(s.Name, subscription) {
			return s.LockDuration
		}
	}
	return i.LockDuration
}

// Subscription is how a subscription of a topic was made.
type Subscription struct {
	Name string

	DefaultMessageTimeToLive time.Duration // 0 = unlimited
	LockDuration             time.Duration
	AutoDeleteOnIdle         time.Duration // 0 = never

	CreatedAt, UpdatedAt time.Time // as those of Info

	RequiresSession                  bool
	DeadLetteringOnMessageExpiration bool

	// As those of Info.
	ForwardTo, ForwardDeadLetteredMessagesTo string
}

var (
	// ErrNotFound says that the namespace has no queue or topic of that name.
	ErrNotFound = errors.New("entities: no such entity")
	// ErrUnknown says that there is no answer yet, or none that will do.
	ErrUnknown = errors.New("entities: not known yet")
	// ErrNoRight says that the namespace does not tell us. Its administration asks for the Manage right.
	ErrNoRight = errors.New("entities: no right to read settings")
)

// An UnreachableError is why nothing is known of an entity while its source does not answer.
type UnreachableError struct {
	Since time.Time // the first try that failed; none has succeeded
	Err   error     // of the last one
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("entities: no answer since %s: %v", e.Since.UTC().Format(time.RFC3339), e.Err)
}

func (e *UnreachableError) Unwrap() error { return e.Err }
