// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Event is one thing that somebody has to know. Its JSON form is a CloudEvent 1.0 in
// structured mode.
type Event struct {
	ID      string // see [IDOf] and [IDOfMoment]: the same message gives the same id, however often it is told
	Type    string // one of the Type constants
	Source  string // sb://<namespace>/<entity>
	Subject string // the message-id
	Time    time.Time
	Data    EventData
}

// EventData is the data of a deadline event. Times are by the broker's clock.
type EventData struct {
	Entity           string    `json:"entity"`
	Subscription     string    `json:"subscription,omitempty"`
	MessageID        string    `json:"messageId"`
	SessionID        string    `json:"sessionId,omitempty"`
	SequenceNumber   int64     `json:"sequenceNumber"`
	EnqueuedTime     time.Time `json:"enqueuedTime"`
	Deadline         time.Time `json:"deadline"`
	DeadlineKind     string    `json:"deadlineKind"` // which one: KindReceived or KindCompleted
	DeadLetteredTime time.Time `json:"deadLetteredTime,omitzero"`
	LagMs            int64     `json:"lagMs"` // how long after the instant that the event is about it was noticed
	Strategy         string    `json:"strategy,omitempty"`
	DeadLetterReason string    `json:"deadLetterReason,omitempty"`
	WarnBeforeMs     int64     `json:"warnBeforeMs,omitempty"` // of TypeNear: how long before the deadline somebody wants to be told
	State            string    `json:"state,omitempty"`        // of a message that is still there: "active" (waiting or locked) or "deferred"
	CorrelationID    string    `json:"correlationId,omitempty"`
	DeliveryCount    uint32    `json:"deliveryCount"`
}

// Kinds of deadlines.
const (
	KindReceived  = "received"
	KindCompleted = "completed"
)

// Lag is how long after its deadline a message was dead-lettered, or after the instant that the event is about noticed.
func (d *EventData) Lag() time.Duration {
	if d.DeadLetteredTime.IsZero() {
		return time.Duration(d.LagMs) * time.Millisecond
	}
	return d.DeadLetteredTime.Sub(d.Deadline)
}

// IDOf is the same for one message whichever companion, worker or attempt speaks of it, and
// however they spell its queue.
func IDOf(source string, number int64, enqueued time.Time) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%d\n%d", strings.ToLower(source), number, enqueued.UnixMilli()))
	return hex.EncodeToString(sum[:16])
}

// MarshalJSON is the structured mode of the CloudEvents JSON format.
func (e Event) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		SpecVersion     string    `json:"specversion"`
		ID              string    `json:"id"`
		Type            string    `json:"type"`
		Source          string    `json:"source"`
		Subject         string    `json:"subject"`
		Time            time.Time `json:"time"`
		DataContentType string    `json:"datacontenttype"`
		Data            EventData `json:"data"`
	}{"1.0", e.ID, e.Type, e.Source, e.Subject, e.Time, "application/json", e.Data})
}
