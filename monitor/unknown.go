// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"time"

	"overdue/monitor/metrics"
	"overdue/scheduler"
)

// An Unknown is a deadline of which nobody can tell whether it was met.
type Unknown struct {
	Entity         string    // a queue, or topic/Subscriptions/name
	MessageID      string    // "" = none is known
	SequenceNumber int64     // 0 = the message was never seen
	From           time.Time // the deadlines of all messages from then to Deadline; zero = of one
	Deadline       time.Time
	Judged         time.Time
	Why            string
}

// Why nobody can tell.
const (
	isMet        = "" // somebody can: the message was received in time
	whyMissing   = "its queue or subscription does not exist"
	whyForwarded = "it was forwarded too often to follow it"
	whyAssumed   = "its deadline came from a time to live that does not hold"
	whyDropped   = "it is gone, and its queue drops expired messages: it was received, or it expired"
	whyTaken     = "it is gone, and dead letters may have been taken away: it was received, or it expired"
)

// noteUnknown counts an unknown verdict, and hands it on. Nobody waits for a canary.
func (w *Worker) noteUnknown(u Unknown) {
	w.metrics.Verdict(u.Entity, metrics.Unknown, u.Deadline, 0)
	if w.cfg.Unknown != nil && !w.cfg.Deadlines.IsCanary(u.Entity) {
		w.cfg.Unknown(u)
	}
}

// unknown is the verdict about the message of wt.
func (wt *watch) unknown(entity, why string) Unknown {
	return unknownOf(entity, wt.reference(), wt.identity.Number, wt.deadline, why)
}

// unknown is the verdict about the messages of r.
func (r *rule) unknown(entity, why string) Unknown {
	u := unknownOf(entity, &r.ref, r.ref.SequenceNumber, r.due(), why)
	if r.slot != nil {
		u.From = r.slot.SlotStart().UTC()
	}
	return u
}

func unknownOf(entity string, ref *scheduler.Reference, number int64, deadline time.Time, why string) Unknown {
	return Unknown{
		Entity:         entity,
		MessageID:      ref.MessageID,
		SequenceNumber: number,
		Deadline:       deadline.UTC(),
		Judged:         time.Now().UTC(),
		Why:            why,
	}
}
