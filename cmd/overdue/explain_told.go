// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"overdue/alert"
	"overdue/internal/config"
	"overdue/internal/notifications"
	"overdue/internal/operator/dlq"
)

// ask asks the process at listen.admin what was told of the message. Nothing may run there: the monitor may be elsewhere.
func (x *explanation) ask(ctx context.Context, c *config.Config, place dlq.Place) {
	addr, err := adminAddress(c, "explain")
	if err != nil {
		return
	}
	all, err := notifications.Fetch(ctx, addr, x.MessageID)
	if err != nil {
		x.Note = fmt.Sprintf("Who was told of it is not known here: no monitor answers at listen.admin, %s.", addr)
		return
	}
	for _, t := range all {
		if strings.EqualFold(t.Event.Data.Entity, place.Entity) && strings.EqualFold(t.Event.Data.Subscription, place.Subscription) {
			x.notified = append(x.notified, t)
		}
	}
}

// missed is the event about the missed deadline of that very message; nil without one.
func (x *explanation) missed(l *dlq.Letter) *alert.EventData {
	for i := range x.notified {
		d := &x.notified[i].Event.Data
		if x.notified[i].Event.Type == alert.TypeMissed && d.SequenceNumber == l.Number && d.EnqueuedTime.Truncate(time.Millisecond).Equal(l.EnqueuedTime.Truncate(time.Millisecond)) {
			return d
		}
	}
	return nil
}

// notification adds who has taken an event. Of a message that is not there any more the event also says when it was missed.
func (x *explanation) notification(t *notifications.Fetched) {
	d := &t.Event.Data
	if t.Event.Type == alert.TypeMissed && x.dead == 0 {
		x.add(d.EnqueuedTime, "enqueued", "the monitor", "enqueued as number %d", d.SequenceNumber)
		x.add(d.Deadline, "deadline", "the monitor", "its deadline")
		x.add(d.DeadLetteredTime, "dead-lettered", "the monitor", "dead-lettered %s after its deadline (%s), %s",
			d.Lag().Round(time.Millisecond), d.Strategy, d.DeadLetterReason)
	}
	for _, by := range t.TakenBy {
		x.add(by.Time, "told", by.Sink, "told: %s has taken %s %s", by.Sink, t.Event.Type, t.Event.ID)
	}
}
