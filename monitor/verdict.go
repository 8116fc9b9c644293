// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"time"

	"overdue/alert"
	"overdue/internal/servicebus/duration"
	"overdue/internal/servicebus/link"
	"overdue/monitor/judge"
	"overdue/monitor/metrics"
	"overdue/monitor/scan"
	"overdue/monitor/search"
	"overdue/scheduler"

	"go.uber.org/zap"
)

// Evidence of a missed deadline, as events name it. Nothing else makes a deadline missed.
const (
	evidenceDeadLetter = "deadLetter" // its dead letter was read, or this worker dead-lettered it
	evidenceExpired    = "expired"    // it stood there overdue, and was gone behind our nudge
)

// reasonDropped replaces the dead-letter reason in events about messages that the broker dropped.
const reasonDropped = "Dropped"

// concludeGone decides about a message that is gone, and of which no dead letter was found. One may
// come late, so it is searched for once more, unless letters are known to be taken away. Where they
// stay, that it has none says that it was received. Elsewhere it has expired if it stood there
// overdue right before our nudge.
func (e *entity) concludeGone(ctx context.Context, wt *watch) {
	latest, known := e.w.clock.NotAfter()
	proven := wt.expired != nil && !e.wasSettled(wt)
	mayComeLate := !proven || !e.letters.areTaken()
	switch {
	case known && latest.Before(wt.deadline) && !e.settings.sessions:
		e.finish(ctx, wt, metrics.Met)
	case proven && e.settings.drops:
		e.missUnread(ctx, wt, reasonDropped)
	case wt.state == stateGone && mayComeLate:
		wt.state = stateUnexplained
		e.checkLater(ctx, wt, letterWait)
	case proven && !e.letters.stay():
		e.missUnread(ctx, wt, search.ReasonExpired)
	case e.settings.forwardTo != "":
		e.end(wt)
		e.follow(ctx, wt.companions[0], wt.reference(), wt.hops)
		for _, c := range wt.companions[1:] {
			c.Done(ctx, nil)
		}
	default:
		e.finish(ctx, wt, e.verdictOf(true, wt.deadline, wt.seenAt))
	}
}

// missUnread notifies of a message that has expired, although its dead letter was not read.
func (e *entity) missUnread(ctx context.Context, wt *watch, reason string) {
	missed := judge.Missed(wt.expired, wt.deadline)
	missed.DeadLetteredTime = duration.Later(e.w.clock.Now(), wt.deadline)
	missed.DeadLetterReason = reason
	missed.Strategy = strategyNative
	missed.Evidence = evidenceExpired
	wt.expire(missed)
	e.conclude(ctx, wt)
}

// verdictOf is the verdict about a message that is gone and in no dead-letter queue. late says that
// it may have been there at its deadline. Then only letters that stay show that it was received.
// seen is when it was last seen, by our clock: until then it had no letter.
func (e *entity) verdictOf(late bool, deadline, seen time.Time) string {
	expired := time.Now().Add(deadline.Sub(e.w.clock.Latest()))
	if late && (e.settings.drops || !e.letters.stayedSince(duration.Later(expired, seen))) {
		return metrics.Unknown
	}
	return metrics.Met
}

// countGone counts the verdict of a message that is gone. If it only had to be completed in time
// and was not, it has been counted.
func (w *Worker) countGone(entity string, r *scheduler.Reference, verdict string) {
	if r.Stated == scheduler.StatedComplete && r.Incomplete {
		return
	}
	if w.cfg.Scheduler.Refused(entity, r) {
		return // it never was on its queue
	}
	w.metrics.Verdict(entity, verdict)
}

// missed describes the missed deadline of m, the dead letter of wt.
func (e *entity) missed(wt *watch, m *link.Message) *scheduler.Missed {
	strategy, moved := strategyNative, e.w.clock.Now()
	wt.learn(m)
	if wt.state == stateUnexplained {
		moved = moved.Add(-letterWait) // it was gone by then
	}
	if m.DeadLetterReason == scan.Reason {
		strategy = strategyScan
	} else if at, known := e.nudger.MadeFor(wt.deadline); known && !wt.attempt.isMade() {
		moved = at // it has no stamp
	}
	missed := judge.Missed(m, wt.deadline)
	missed.DeadLetteredTime = duration.Later(moved, wt.deadline) // our clock may be a little behind
	missed.DeadLetterReason = m.DeadLetterReason
	missed.Strategy = strategy
	missed.Evidence = evidenceDeadLetter
	return missed
}

// eventID returns the id of the event about the missed deadline of a message.
func eventID(path string, identity search.Identity) string {
	return alert.IDOf(path, identity.Number, identity.EnqueuedTime())
}

// An entity without dead-lettering on expiry drops expired messages at the next receive of any
// client. The broker no longer delivers an expired message, so it cannot be saved. But the monitor
// does not cause the drop. It logs the setting to change, leaves the message alone and checks until
// it is gone. A scan keeps a deadline before the end of the time to live, as elsewhere.
//
// With the strategy native, the operator wants such messages dropped, with a notification, at once.

// isSpared reports whether the message of wt must not be expired, since the broker would drop it.
// It logs the setting to change once.
func (e *entity) isSpared(wt *watch) bool {
	if !e.settings.drops || !wt.judgement.Native || e.settings.Strategy == strategyNative {
		return false
	}
	if !e.settings.warnedOfDrops {
		e.settings.warnedOfDrops = true
		e.log.Warn("message expired unreceived, and its entity drops expired messages",
			zap.String("message_id", wt.reference().MessageID),
			zap.String("next", "set deadLetteringOnMessageExpiration on the entity, or state deadlines with overdue-within and no time to live"))
	}
	return true
}
