// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"container/heap"
	"context"
	"slices"
	"time"

	"overdue/alert"
	"overdue/internal/servicebus/duration"
	"overdue/internal/servicebus/link"
	"overdue/monitor/intake"
	"overdue/monitor/judge"
	"overdue/monitor/metrics"
	"overdue/monitor/scan"
	"overdue/monitor/search"
	"overdue/scheduler"

	"go.uber.org/zap"
)

// conclude ends a watch, or has it checked again.
func (e *entity) conclude(ctx context.Context, wt *watch) {
	switch wt.state {
	case stateMissed:
		e.end(wt)
		e.notify(ctx, wt)
	case stateMet:
		e.finish(ctx, wt, isMet)
	case stateGone, stateUnexplained:
		e.concludeGone(ctx, wt)
	case stateWaiting:
		e.postpone(ctx, wt)
	case stateInFlight:
		e.recheck(ctx, wt)
	}
}

// end takes wt out of hand.
func (e *entity) end(wt *watch) {
	delete(e.watches, wt.identity)
	wt.ended = true
}

// finish ends wt, whose deadline was not missed. why says why nobody can tell, or isMet.
func (e *entity) finish(ctx context.Context, wt *watch, why string) {
	e.end(wt)
	e.w.countGone(wt.reference(), wt.unknown(e.name, why))
	for _, c := range wt.companions {
		c.Done(ctx, nil)
	}
}

// postpone has wt checked at its deadline, or at the first reminder before.
func (e *entity) postpone(ctx context.Context, wt *watch) {
	wt.attempt = attempt{} // of a deadline that did not hold
	next := wt.nextReminder(&e.settings)
	switch {
	case next.IsZero() && wt.judgement.Assumed:
		e.finish(ctx, wt, whyAssumed)
	case next.IsZero():
		e.finish(ctx, wt, isMet) // nothing is left to notify of
	case !isNear(&e.w.clock, next):
		e.rewrite(ctx, wt, next.Add(e.w.clock.Grain()))
	default:
		if next.Equal(wt.deadline) {
			next = wt.due
		}
		next = next.Add(e.w.clock.Grain()) // a stamp may be cut, and so much earlier than it says
		if e.isFast() && wt.isNudged(e.settings.Settings) {
			e.nudges.Want(ctx, next, next)
		}
		e.checkLater(ctx, wt, e.w.clock.Until(next))
	}
}

const (
	// A watch that is not over is checked again after half of the time that it has lasted, checkMin at
	// least. A message in flight is checked after checkMax at most, so that its notification follows
	// within a second after a consumer gives it back. Any other is checked after waitMax at most.
	checkMin = 200 * time.Millisecond
	checkMax = 750 * time.Millisecond
	waitMax  = 2 * time.Minute
)

// growing returns how long to wait for the end of what has lasted for so long.
func growing(lasted, most time.Duration) time.Duration { return min(max(lasted/2, checkMin), most) }

// recheck has a message that is in flight checked again. Where its delivery count has risen since
// the last attempt to expire it, a consumer gave it back, and it is tried again at once.
func (e *entity) recheck(ctx context.Context, wt *watch) {
	e.w.metrics.InFlight(e.name, wt.deadline)
	late := e.w.clock.Now().Sub(wt.due)
	wait := growing(late, checkMax)
	switch j := &wt.judgement; {
	case j.Assumed && !j.Otherwise.IsZero(): // the broker has left it
		wt.attempt = attempt{}
		j.Deadline = j.Otherwise
		wt.setDeadline(e.settings.Settings)
		next := wt.due.Add(e.w.clock.Grain())
		wait = e.w.clock.Until(next)
		isNext := wt.untilComplete(&e.w.clock, wait) == wait
		if isNext && !isNear(&e.w.clock, next) { // wait has a margin, which would make the companion late
			e.rewrite(ctx, wt, next)
			return
		}
	case j.Assumed && (!j.Deferred || wt.isRefuted(&e.w.notified, e.name)): // it does not hold for the message
		j.Deadline = time.Time{}
		e.postpone(ctx, wt)
		return
	case e.isSpared(wt):
		wait = growing(late, waitMax)
	case wt.attempt.isMade() && wt.attempt.isFree(wt.seen):
		wt.attempt.next = time.Now()
		wait = 0
	default:
		wait = e.w.roomyWait(wait)
	}
	e.checkLater(ctx, wt, wt.untilComplete(&e.w.clock, wait))
}

// checkLater has wt checked again after wait: from hand if its companions can be held that long,
// otherwise by rewriting them.
func (e *entity) checkLater(ctx context.Context, wt *watch, wait time.Duration) {
	if !slices.ContainsFunc(wt.companions, func(c *intake.Companion) bool { return !c.MayWait(wait) }) {
		wt.next = time.Now().Add(max(wait, time.Millisecond)) // what was just checked is not checked at once
		heap.Push(&e.agenda, wt)
		return
	}
	e.rewrite(ctx, wt, e.w.clock.Now().Add(wait))
}

// rewrite ends wt and writes a companion that takes over, due at an instant of the clock of the
// broker.
func (e *entity) rewrite(ctx context.Context, wt *watch, due time.Time) {
	e.end(wt)
	first := wt.companions[0]
	first.Done(ctx, wt.again(e.name, due, first.Content.Attempt))
	for _, c := range wt.companions[1:] {
		c.Done(ctx, nil)
	}
}

// Evidence of a missed deadline, as events name it. Nothing else makes a deadline missed.
const (
	evidenceDeadLetter = "deadLetter" // its dead letter was read, or this worker dead-lettered it
	evidenceExpired    = "expired"    // it stood there overdue, and was gone behind our nudge
)

// reasonDropped replaces the dead-letter reason in events about messages that the broker dropped.
const reasonDropped = "Dropped"

// concludeGone decides about a message that is gone, and of which no dead letter was found. One may
// come late, so it is searched for once more, unless letters are known to be taken away and nobody
// is settling it. Where they stay, that it has none says that it was received. Elsewhere it has
// expired if it stood there overdue right before our nudge.
func (e *entity) concludeGone(ctx context.Context, wt *watch) {
	latest, known := e.w.clock.NotAfter()
	settled, maybe := e.wasSettled(wt)
	proven := wt.expired != nil && !settled
	isBeingSettled := wt.state == stateGone && maybe
	mayComeLate := !proven || !e.letters.areTaken() || isBeingSettled
	switch {
	case known && latest.Before(wt.deadline) && !e.settings.sessions:
		e.finish(ctx, wt, isMet)
	case proven && e.settings.drops && !isBeingSettled:
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
		e.finish(ctx, wt, e.doubtOf(true, wt.deadline, wt.seenAt))
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

// doubtOf returns why nobody can tell what became of a message that is gone and in no dead-letter
// queue, or isMet. late says that it may have been there at its deadline. Then only letters that
// stay show that it was received. seen is when it was last seen, by our clock: until then it had no
// letter.
func (e *entity) doubtOf(late bool, deadline, seen time.Time) (why string) {
	expired := time.Now().Add(deadline.Sub(e.w.clock.Latest()))
	switch {
	case !late:
		return isMet
	case e.settings.drops:
		return whyDropped
	case !e.letters.stayedSince(duration.Later(expired, seen)):
		return whyTaken
	}
	return isMet
}

// countGone counts the verdict of a message that is gone: it is u, unless that has no reason. If the
// message only had to be completed in time and was not, it has been counted.
func (w *Worker) countGone(r *scheduler.Reference, u Unknown) {
	switch {
	case r.Stated == scheduler.StatedComplete && r.Incomplete:
	case w.cfg.Scheduler.Refused(u.Entity, r): // it never was on its queue
	case u.Why == isMet:
		w.metrics.Verdict(u.Entity, metrics.Met, u.Deadline, 0)
	default:
		w.noteUnknown(u)
	}
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
	} else if at, known := e.nudges.MadeFor(wt.deadline); known && !wt.attempt.isMade() {
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
