// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"encoding/json"
	"time"
)

// TypeMissed is the CloudEvents type of a deadline that was missed.
const TypeMissed = "overdue.deadline.missed"

// Event is one thing that somebody has to know. Its JSON form is a CloudEvent 1.0 in
// structured mode.
type Event struct {
	ID      string // stable: the same message gives the same id, however often it is told
	Type    string
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
	DeadLetteredTime time.Time `json:"deadLetteredTime"`
	LagMs            int64     `json:"lagMs"` // DeadLetteredTime minus Deadline
	Strategy         string    `json:"strategy"`
	DeadLetterReason string    `json:"deadLetterReason"`
	CorrelationID    string    `json:"correlationId,omitempty"`
	DeliveryCount    uint32    `json:"deliveryCount"`
}

// Lag is how long after its deadline the message was dead-lettered.
func (d *EventData) Lag() time.Duration { return d.DeadLetteredTime.Sub(d.Deadline) }

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

// event is what there is to tell about the missed message of wt.
func (w *Worker) event(entity string, wt *watch) Event {
	m := wt.missed
	source := w.source(entity)
	return Event{
		ID: eventID(source, m.SequenceNumber, m.EnqueuedTime), Type: TypeMissed,
		Source: source, Subject: wt.ref.MessageID, Time: m.DeadLetteredTime.UTC(),
		Data: EventData{
			Entity: entity, MessageID: wt.ref.MessageID, SessionID: wt.ref.SessionID,
			SequenceNumber: m.SequenceNumber, EnqueuedTime: m.EnqueuedTime.UTC(), Deadline: m.Deadline.UTC(),
			DeadLetteredTime: m.DeadLetteredTime.UTC(), LagMs: m.DeadLetteredTime.Sub(m.Deadline).Milliseconds(),
			Strategy: m.Strategy, DeadLetterReason: m.DeadLetterReason,
			CorrelationID: m.CorrelationID, DeliveryCount: m.DeliveryCount,
		},
	}
}

func (w *Worker) source(entity string) string { return "sb://" + w.cfg.Namespace + "/" + entity }

func (e *entity) eventID(number int64, enqueued time.Time) string {
	return eventID(e.w.source(e.name), number, enqueued)
}
