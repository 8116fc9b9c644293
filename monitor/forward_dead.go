// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"strings"

	"overdue/internal/servicebus/link"
	"overdue/monitor/judge"
	"overdue/monitor/search"
	"overdue/scheduler"

	"go.uber.org/zap"
)

// findForwardedDead searches forwarded dead letters: by message-id, and by the source that the
// broker wrote on them. If they cannot be read, it finds none.
func (e *entity) findForwardedDead(ctx context.Context, watches []*watch) error {
	// Sequence numbers there are different, and enqueued times are those of the forwarding, or the
	// old ones.
	wants := make([]*search.Want, len(watches))
	for i, wt := range watches {
		w := &search.Want{Ref: &wt.ref, MessageID: wt.ref.MessageID, Until: search.Forever}
		if !wt.ref.From.IsZero() {
			w.From, w.Likely = wt.ref.From.Add(-search.WindowMargin), wt.ref.DeadlineAt(wt.ref.From).Add(-search.WindowMargin)
		}
		wants[i] = w
	}
	taken := map[int64]bool{}
	err := e.openDeadTarget(ctx).FindNamed(ctx, wants, func(_ *search.Want, m *link.Message) bool {
		if taken[m.SequenceNumber] || !e.isUnreceived(m) || !strings.EqualFold(m.DeadLetterSource, e.name) {
			return false
		}
		taken[m.SequenceNumber] = true
		return true
	})
	if err = e.deadTargetError(ctx, err); err != nil {
		return err
	}
	for i, wt := range watches {
		if m := wants[i].Found; m != nil {
			wt.expired(e.missedElsewhere(wt, m))
		}
	}
	return nil
}

// openDeadTarget returns the view of the queue that dead letters are forwarded to.
func (e *entity) openDeadTarget(ctx context.Context) *search.View {
	if e.deadTarget.Path != e.settings.forwardDead {
		e.deadTarget.Close(ctx)
		e.deadTarget = search.View{Links: e.w.cfg.Links, Path: e.settings.forwardDead, Operations: e.w.metrics.Operations, Seen: &search.SeenIDs{}}
	}
	return &e.deadTarget
}

// deadTargetError drops errors that say that this queue cannot be read at all: nothing is found
// there. Others, such as one of a busy broker, pass, and the check is repeated.
func (e *entity) deadTargetError(ctx context.Context, err error) error {
	switch link.Condition(err) {
	case link.ConditionNotFound, link.ConditionNotAllowed, link.ConditionUnauthorized, link.ConditionDisabled:
	default:
		return err
	}
	e.log.Warn("forwarded dead letters cannot be read", zap.String("forwarded_to", e.deadTarget.Path), zap.Error(err))
	e.deadTarget.Close(ctx)
	return nil
}

// forwardedID identifies a forwarded dead letter in notifiedEvents, since its sequence number has
// changed.
func (e *entity) forwardedID(messageID string) string {
	return strings.ToLower(e.name) + "\x00" + messageID
}

// missedElsewhere is missed for a forwarded dead letter.
func (e *entity) missedElsewhere(wt *watch, m *link.Message) *scheduler.Missed {
	missed := e.missed(wt, m)
	if seen := wt.evidence.expired; seen != nil {
		missed.SequenceNumber, missed.EnqueuedTime = seen.SequenceNumber, seen.EnqueuedTime
		missed.Deadline = judge.DeadlineOf(&wt.ref, seen, e.settings.Settings)
	} else {
		missed.Deadline = wt.ref.Deadline
	}
	return missed
}
