// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"strings"
	"time"

	"overdue/internal/servicebus/duration"
	"overdue/internal/servicebus/link"
	"overdue/monitor/intake"
	"overdue/monitor/search"
	"overdue/scheduler"

	"go.uber.org/zap"
)

// maxHops bounds how often a forwarded message is followed. Service Bus forwards it no more
// often ("Overview of Service Bus dead-letter queues", maximum transfer hop count). It also
// ends a cycle.
const maxHops = 5

// follow searches for a message at the destination of e: it has left e and did not expire there. At
// the destination it is a new message, with a new stamp, and its time to live starts again.
//
// It is searched for in the window of its send. If the destination was full or disabled for a
// while, it was enqueued later and is not found.
func (e *entity) follow(ctx context.Context, c *intake.Companion, ref *scheduler.Reference, hops int) {
	next := newRule(c, *ref, nil)
	if hops == maxHops {
		e.log.Warn("message forwarded too often: its deadline is no longer watched", zap.String("message_id", ref.MessageID), zap.Int("forwards", maxHops), zap.String("next", "check forwardTo of the entities for a cycle"))
		e.w.noteUnknown(next.unknown(e.name, whyForwarded))
		c.Done(ctx, nil)
		return
	}
	next.hops = hops + 1
	next.ref.Warned, next.ref.Incomplete, next.ref.SequenceNumber = 0, false, 0
	e.w.route(ctx, e.settings.forwardTo, next)
}

// Forwarded dead letters have other numbers. Their stamps are those of the forwarding, or the old
// ones. They are found by message-id, and by the source that the broker wrote on them.

// findForwarded finds the forwarded dead letters of watches.
func (r *round) findForwarded(ctx context.Context, watches []*watch) error {
	if r.settings.forwardDead == "" || len(watches) == 0 {
		return nil
	}
	byID, from := map[string][]*watch{}, watches[0].identity.EnqueuedTime()
	for _, wt := range watches {
		id := wt.reference().MessageID
		byID[id] = append(byID[id], wt)
		from = duration.Earlier(from, wt.identity.EnqueuedTime())
	}
	return r.readForwarded(ctx, from, func(m *link.Message) {
		same := byID[m.MessageID]
		if m.MessageID == "" || len(same) == 0 {
			return
		}
		wt := same[0]
		byID[m.MessageID] = same[1:]
		missed := r.missed(wt, m)
		missed.SequenceNumber, missed.EnqueuedTime = wt.identity.Number, wt.identity.EnqueuedTime().UTC()
		wt.expire(missed)
	})
}

// meetForwarded finds the forwarded dead letters of rules whose messages expired before they were
// read.
func (r *reading) meetForwarded(ctx context.Context) error {
	e, from := r.e, r.e.w.clock.Now()
	for rl := range r.late {
		if first, _ := rl.window(search.WindowMargin); first.Before(from) && rl.slot == nil {
			from = first
		}
	}
	return e.readForwarded(ctx, from, func(m *link.Message) {
		if e.w.notified.IsFinal(forwardedID(e.name, m.MessageID)) || e.w.notified.IsFinal(eventID(e.name, search.IdentityOf(m))) {
			return
		}
		for _, rl := range append(r.byID[m.MessageID], r.withoutID...) {
			named := !rl.ref.WithoutID()
			if r.late[rl] && !rl.matched && (named && m.SessionID == rl.ref.SessionID || !named && rl.agrees(m, e.settings.Settings)) {
				r.watchLetter(ctx, rl, m, rl.ref.Deadline)
				return
			}
		}
	})
}

// readForwarded reads the letters of e at the queue that they are forwarded to, as far as they were
// enqueued at an instant or later. If that queue cannot be read at all, it has none.
func (e *entity) readForwarded(ctx context.Context, from time.Time, see func(*link.Message)) error {
	target := e.letters.target
	if target == nil || target.Path != e.settings.forwardDead {
		if target != nil {
			target.Close(ctx)
		}
		target = &search.View{Links: e.w.cfg.Links, Path: e.settings.forwardDead, Operations: e.w.metrics.Operations}
		e.letters.target = target
	}
	err := target.Between(ctx, from.Add(-search.WindowMargin), search.Forever, func(m *link.Message) {
		if e.settings.isUnreceived(m) && strings.EqualFold(m.DeadLetterSource, e.name) {
			see(m)
		}
	})
	switch link.Condition(err) {
	case link.ConditionNotFound, link.ConditionNotAllowed, link.ConditionUnauthorized, link.ConditionDisabled:
		e.log.Warn("forwarded dead letters cannot be read", zap.String("forwarded_to", target.Path), zap.Error(err))
		target.Close(ctx)
		return nil
	}
	return err
}

// forwardedID identifies a forwarded dead letter in the record of events, since its sequence number
// has changed.
func forwardedID(path, messageID string) string {
	return strings.ToLower(path) + "\x00" + messageID
}
