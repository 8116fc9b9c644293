// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"strings"
	"time"

	"overdue/internal/servicebus/link"
	"overdue/scheduler"
)

// reasonExpired is the dead-letter reason of messages that the broker has expired itself
// ("Overview of Service Bus dead-letter queues").
const reasonExpired = "TTLExpiredException"

// decideGone shows for messages that are gone from the work queue whether their deadlines
// were met or missed: missed is what expired into the dead-letter queue. A message that is
// there for another reason has been received before.
//
// Numbers in a dead-letter queue are those of the work queue, and not in order of arrival,
// so there is no tail to read: it is checked where the message must stand.
func (e *entity) decideGone(ctx context.Context, gone []*watch) error {
	if len(gone) == 0 {
		return nil
	}
	wants := make([]*want, len(gone))
	for i, wt := range gone {
		w := &want{identity: wt.want.identity, hint: wt.want.hint, firstFit: wt.want.firstFit}
		w.seek(&wt.ref)
		wants[i] = w
	}
	if err := e.dead.find(ctx, wants, e.chooser(e.notNotified)); err != nil {
		return err
	}
	var nowhere []*watch
	for i, wt := range gone {
		wt.want.merge(wants[i])
		m := wants[i].found
		if m == nil {
			m = wants[i].spare
		}
		switch {
		case m != nil && expired(m):
			wt.missed = e.missed(wt, m)
		case m == nil:
			nowhere = append(nowhere, wt)
		}
	}
	return e.decideDisappeared(ctx, nowhere)
}

// readDeadLetters finds those of the watches whose messages are dead letters by now. Where an expiry has just worked that
// spares the check the work queue, and it is early enough to see a dead letter that somebody is about to take away.
func (e *entity) readDeadLetters(ctx context.Context, watches []*watch) error {
	if len(watches) == 0 || e.settings.forwardDead != "" {
		return nil
	}
	wants := make([]*want, len(watches))
	for i, wt := range watches {
		wants[i] = &want{identity: wt.want.identity}
	}
	err := e.dead.findNumbered(ctx, wants, nil)
	kept := false
	for i, wt := range watches {
		if m := wants[i].found; m != nil {
			kept = true
			wt.judgement.verdict = gone
			if expired(m) {
				wt.missed = e.missed(wt, m)
			}
		}
	}
	if kept && e.w.states.get(e.key).disappeared > 0 {
		e.w.states.update(e.key, func(f *entityState) { f.disappeared = max(f.disappeared-1, 0) })
	}
	return err
}

// readSeenDeadLetters looks into the dead-letter queue for those of the watches whose messages were seen
// while others were searched for, and are not on the work queue any more. What it finds is not looked
// for there by name, so it must not be an older message with the same id: it takes none that
// may have been there before the send, and needs to know when that was.
func (e *entity) readSeenDeadLetters(ctx context.Context, watches []*watch) error {
	var wants []*want
	var hinted []*watch
	for _, wt := range watches {
		if wt.want.number == 0 && wt.want.found == nil && wt.want.hint != 0 && !wt.ref.From.IsZero() {
			w := &want{hint: wt.want.hint, firstFit: wt.want.firstFit}
			w.seek(&wt.ref)
			w.from = w.likely
			wants, hinted = append(wants, w), append(hinted, wt)
		}
	}
	if len(wants) == 0 {
		return nil
	}
	err := e.dead.findNumbered(ctx, wants, e.chooser(e.notNotified))
	for i, wt := range hinted {
		wt.want.merge(wants[i])
		if m := wants[i].found; m != nil {
			wt.missed = e.missed(wt, m)
		}
	}
	return err
}

// notNotified reports whether m is the dead letter of a missed deadline that is not notified yet.
func (e *entity) notNotified(m *link.Message) bool {
	return expired(m) && !e.w.notified.has(e.eventID(m.SequenceNumber, m.EnqueuedTime))
}

// expired reports whether m is in the dead-letter queue because nobody received it in time.
func expired(m *link.Message) bool {
	return m.DeadLetterReason == reasonExpired || m.DeadLetterReason == reasonDeadline
}

// missed is what there is to notify of about message m on the dead-letter queue.
func (e *entity) missed(wt *watch, m *link.Message) *scheduler.Missed {
	strategy, deadline, moved := strategyNative, deadlineOf(&wt.ref, m, e.settings.Settings), e.w.clock.now()
	if m.DeadLetterReason == reasonDeadline {
		strategy = strategyScan
	} else if at, known := e.nudger.movedAt(later(deadline, wt.seenAt)); known {
		moved = at // nobody has stamped it
	}
	return &scheduler.Missed{
		SequenceNumber: m.SequenceNumber, EnqueuedTime: m.EnqueuedTime,
		Deadline: deadline, DeadLetteredTime: moved,
		DeadLetterReason: m.DeadLetterReason, Strategy: strategy,
		CorrelationID: bounded(m.CorrelationID), DeliveryCount: m.DeliveryCount,
	}
}

// later is the later of two instants.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// maxCorrelationID bounds what of a correlation-id goes into companions and events, in bytes. Unlike
// the other ids it has no bound of its own.
const maxCorrelationID = 512

// bounded cuts a correlation-id to its bound.
func bounded(id string) string {
	return strings.ToValidUTF8(id[:min(len(id), maxCorrelationID)], "")
}
