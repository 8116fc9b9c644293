// SPDX-License-Identifier: Apache-2.0

package queue

import "time"

// State is the state of a message in a peek. The values are those of Service Bus.
type State int8

// The states of a message.
const (
	Active    State = iota // waiting or locked
	Deferred               // set aside, received by sequence number only
	Scheduled              // waiting for its scheduled enqueue time
)

// LockToken proves one delivery. Its bytes are in RFC 4122 order. The zero token locks nothing.
type LockToken [16]byte

// Property is one application property set after the message was sent.
type Property struct {
	Key   string
	Value any // opaque to the queue, must not be changed afterwards
}

// Message is what a sender sends. The queue owns Body and Properties from then on.
type Message struct {
	Body                 []byte // opaque, must not be changed afterwards
	MessageID            string
	SessionID            string
	PartitionKey         string        // read at send alone: a view does not have it
	HasSession           bool          // SessionID is meant: "" is a session, too
	TTL                  time.Duration // 0 or less: none. Capped by Config.DefaultMessageTimeToLive
	ScheduledEnqueueTime time.Time     // zero or past: enqueued at once

	// Values that a message brings along after another queue has forwarded it; none of them is refused
	// here.
	EnqueuedSequenceNumber     int64 // in the queue it was first sent to; 0: this one
	Activated                  bool  // it has waited for its ScheduledEnqueueTime, here or there
	Hops                       int   // how often it was forwarded
	DeadLetterReason           string
	DeadLetterErrorDescription string
	DeadLetterSource           string // the entity that dead-lettered it
	// Properties were set by settlements, oldest first, each key once. Shared: do not modify.
	Properties []Property
}

// View is a message as it stands in a queue. It is a copy: it does not change when the message
// does. Times are UTC with a resolution of one microsecond.
type View struct {
	Message // TTL is the capped one

	SequenceNumber int64
	EnqueuedTime   time.Time // of a scheduled message: when it was sent
	ExpiresAt      time.Time // zero: never
	DeliveryCount  int       // failed deliveries before this one, 0 on the first
	State          State
	// EntityTTL: the sender gave no time to live, TTL is the queue's default alone. Service Bus shows
	// that to those who receive the message, and not to those who peek.
	EntityTTL        bool
	Locked           bool      // a consumer has it, or a transaction
	LockedUntil      time.Time // when its last lock ends, or has ended; zero: there was none
	DeadLetteredTime time.Time // when it was moved to this dead-letter queue
}

// Delivery is a message handed to one consumer.
type Delivery struct {
	View
	LockToken LockToken // zero in mode ReceiveAndDelete
}

// Counts is what a queue holds. Expired messages that were not moved yet are counted where they
// are.
type Counts struct {
	Active           int   // waiting or locked
	Deferred         int   // locked ones included
	Scheduled        int   //
	DeadLetter       int   // everything in the dead-letter queue; 0 on a dead-letter queue
	Size             int64 // bytes of all of them
	DuplicateHistory int   // message ids remembered to detect duplicates
}

// Add adds what another queue holds.
func (n *Counts) Add(m Counts) {
	n.Active += m.Active
	n.Deferred += m.Deferred
	n.Scheduled += m.Scheduled
	n.DeadLetter += m.DeadLetter
	n.Size += m.Size
	n.DuplicateHistory += m.DuplicateHistory
}

// addDead adds what the dead-letter queue holds.
func (n *Counts) addDead(dead Counts) {
	n.DeadLetter += dead.Active + dead.Deferred
	n.Size += dead.Size
}
