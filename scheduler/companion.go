// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"
)

// Kinds of companions, as their wire form has them.
const (
	kindEach = "each"
	kindSlot = "slot"
)

// A Companion asks the monitor to check messages of one entity when it becomes due: each message
// that it names, or those for which a slot stands.
//
// The companion of a slot names no message. If a message expires after one of its times to live and
// has its deadline in the slot, it was enqueued in a window of the same length. The monitor finds
// it there.
type Companion struct {
	Entity     string    // queue, topic, or the path of one subscription: where the monitored messages are
	Due        time.Time // when it becomes due, by the broker's clock; zero: shortly before its deadlines
	References []Reference
	Attempt    int // how often it was written again because an alert found no taker

	// Findable is set on a companion that is requested. It says that each of its messages has its time
	// to live for a deadline, so that slots may stand for them, see [Scheduler.Pays].
	Findable bool

	// Of the companion of a slot alone:
	SlotEnd    time.Time       // the slot ends there, by the broker's clock
	SlotLength time.Duration   // 0 = that of the slots that this program writes
	Lives      []time.Duration // the times to live that it stands for
	Spans      []span          // and those that lie in one of these
	// Defaults are those of Lives that messages have which state none: the default of their entity
	// when they were sent.
	Defaults []time.Duration
}

// A span is all times to live from Shortest to Longest, both included.
type span struct{ Shortest, Longest time.Duration }

// IsSlot reports whether c is the companion of a slot.
func (c *Companion) IsSlot() bool { return !c.SlotEnd.IsZero() }

// SlotStart is where the slot begins, which is not part of it.
func (c *Companion) SlotStart() time.Time { return c.SlotEnd.Add(-c.length()) }

func (c *Companion) length() time.Duration { return cmp.Or(c.SlotLength, slot) }

// StandsFor reports whether the slot stands for messages with that time to live.
func (c *Companion) StandsFor(life time.Duration) bool {
	return slices.Contains(c.Lives, life) || slices.ContainsFunc(c.Spans, func(s span) bool { return s.Shortest <= life && life <= s.Longest })
}

// A Reference names one monitored message and says when it has to be received. One without a
// message-id stands for every message that was enqueued in its window, which it needs, and has its
// deadline: see [Reference.WithoutID].
type Reference struct {
	MessageID string `json:"messageId"`
	SessionID string `json:"sessionId,omitempty"`

	// Sent is when the send was made: by the broker's clock when From and Until are
	// set, otherwise by the sender's own clock, which may be wrong by any amount. Zero: none is known,
	// and there may be no message.
	Sent time.Time `json:"sent"`
	// From and Until enclose the enqueued-time that the broker has stamped on the
	// message. Both are zero when the sender could not measure the broker's clock.
	From  time.Time `json:"from,omitzero"`
	Until time.Time `json:"until,omitzero"`
	// SequenceNumber is set once the monitor has seen the message; 0 = any with these names.
	SequenceNumber int64 `json:"sequenceNumber,omitempty"`

	// Deadline is absolute, UTC. When Within is set it is an estimate, and the
	// deadline is the broker's enqueued-time plus Within.
	Deadline time.Time     `json:"deadline"`
	Within   time.Duration `json:"-"`
	// Stated is how it was stated: "deadline", "within", "ttl", "entity", "default", or StatedComplete
	Stated string `json:"stated,omitempty"`

	// Ahead is how long before its deadline it is to be looked at first, since a notification is due
	// by then. It is not part of the wire form: the companion is due so much earlier, and the
	// monitor looks what for.
	Ahead time.Duration `json:"-"`
	// CompleteWithin is how long after its enqueued-time the message has to be settled for good,
	// whole milliseconds; 0 = no matter how long, or that is its Deadline already, see
	// StatedComplete.
	CompleteWithin time.Duration `json:"-"`
	// The notifications so far: that a deadline is as near as Warned, 0 = none; that it was not
	// completed in time.
	Warned     time.Duration `json:"-"`
	Incomplete bool          `json:"incomplete,omitempty"`

	// Traceparent is that of the span of its send; "" = it was not traced. Nothing is decided by it.
	Traceparent string `json:"traceparent,omitempty"`

	// Missed is set once the message has been expired and only the notification is left, so
	// that the alert outlives both this process and the dead-letter queue.
	Missed *Missed `json:"missed,omitempty"`

	// Notified are the ids of the events of messages with this message-id that were notified,
	// separated by commas. Where it is not empty, only others with that id are left to be found.
	Notified string `json:"notified,omitempty"`
}

// Missed is what the monitor saw of a message whose deadline was missed, or for which another
// notification is due.
type Missed struct {
	Type             string    `json:"type,omitempty"` // of the event; "" = the deadline was missed
	SequenceNumber   int64     `json:"sequenceNumber"`
	EnqueuedTime     time.Time `json:"enqueuedTime"`
	Deadline         time.Time `json:"deadline"`
	DeadLetteredTime time.Time `json:"deadLetteredTime"`
	DeadLetterReason string    `json:"deadLetterReason"`
	Strategy         string    `json:"strategy"`
	Evidence         string    `json:"evidence,omitempty"` // as in events
	CorrelationID    string    `json:"correlationId,omitempty"`
	DeliveryCount    uint32    `json:"deliveryCount"`
	Traceparent      string    `json:"traceparent,omitempty"` // that the message carries
	TakenBy          []string  `json:"takenBy,omitempty"`     // the sinks that have taken the alert

	// Where Type is not "", DeadLetteredTime is when the message was seen, and:
	State        string `json:"state,omitempty"`        // "active" or "deferred"
	WarnBeforeMs int64  `json:"warnBeforeMs,omitempty"` // how long before the deadline the reminder is due

	// Notice is the data of an event that is about no message; nil: it is about the message.
	Notice json.RawMessage `json:"notice,omitempty"`
}

// IsNotice reports whether c has an event that is about no message.
func (c *Companion) IsNotice() bool {
	return len(c.References) > 0 && c.References[0].Missed != nil && c.References[0].Missed.Notice != nil
}

// WithoutID reports whether r stands for messages that were sent without a name. The broker's names
// for them are not known.
func (r *Reference) WithoutID() bool { return r.MessageID == "" }

// DeadlineAt is the deadline of the message by the broker's clock, given the
// enqueued-time that the broker stamped on it.
func (r *Reference) DeadlineAt(enqueued time.Time) time.Time {
	if r.Within > 0 {
		return enqueued.Add(r.Within)
	}
	return r.Deadline
}
