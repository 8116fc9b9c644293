// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"slices"
	"time"

	"overdue/monitor/intake"
	"overdue/monitor/metrics"
)

// conclude ends a watch, or has it checked again.
func (e *entity) conclude(ctx context.Context, wt *watch) {
	switch wt.state {
	case stateMissed:
		e.end(wt)
		e.notify(ctx, wt)
	case stateMet:
		e.finish(ctx, wt, metrics.Met)
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
	e.agenda.remove(wt)
}

// finish ends wt, whose deadline was not missed.
func (e *entity) finish(ctx context.Context, wt *watch, verdict string) {
	e.end(wt)
	e.w.countGone(e.name, wt.reference(), verdict)
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
		e.finish(ctx, wt, metrics.Unknown)
	case next.IsZero():
		e.finish(ctx, wt, metrics.Met) // nothing is left to notify of
	case !e.isNear(next):
		e.rewrite(ctx, wt, next.Add(e.w.clock.Grain()))
	default:
		if next.Equal(wt.deadline) {
			next = wt.due
		}
		next = next.Add(e.w.clock.Grain()) // a stamp may be cut, and so much earlier than it says
		if e.isFast() && e.isNudged(wt) {
			e.nudger.Want(ctx, next, next)
		}
		e.checkLater(ctx, wt, e.w.clock.Until(next))
	}
}

const (
	// What is not over is checked again after half of the time that it has lasted, checkMin at least:
	// a message in flight after checkMax at most, so that its notification follows within a second
	// after a consumer gives it back, and all else after waitMax.
	checkMin = 200 * time.Millisecond
	checkMax = 750 * time.Millisecond
	waitMax  = 2 * time.Minute
)

// growing returns how long to wait for the end of what has lasted for so long.
func growing(lasted, most time.Duration) time.Duration { return min(max(lasted/2, checkMin), most) }

// recheck has a message that is in flight checked again. Where its delivery count has risen since
// the last attempt to expire it, a consumer gave it back, and it is tried again at once.
func (e *entity) recheck(ctx context.Context, wt *watch) {
	late := e.w.clock.Now().Sub(wt.due)
	wait := growing(late, checkMax)
	switch j := &wt.judgement; {
	case j.Assumed && !j.Otherwise.IsZero(): // the broker has left it
		wt.attempt = attempt{}
		j.Deadline = j.Otherwise
		wt.setDeadline(e.settings.Settings)
		next := wt.due.Add(e.w.clock.Grain())
		wait = e.w.clock.Until(next)
		isNext := e.untilComplete(wt, wait) == wait
		if isNext && !e.isNear(next) { // wait has a margin, which would make the companion late
			e.rewrite(ctx, wt, next)
			return
		}
	case j.Assumed && (!j.Deferred || e.isRefuted(wt)): // it does not hold for the message
		j.Deadline = time.Time{}
		e.postpone(ctx, wt)
		return
	case e.isSpared(wt):
		wait = growing(late, waitMax)
	case wt.attempt.isMade() && wt.attempt.isFree(wt.seen):
		wt.attempt.next = time.Now()
		wait = 0
	case e.w.intake.IsCrowded():
		wait = max(wait, intake.CrowdedWait)
	}
	e.checkLater(ctx, wt, e.untilComplete(wt, wait))
}

// checkLater has wt checked again after wait: from hand if its companions can be held that long,
// otherwise by rewriting them.
func (e *entity) checkLater(ctx context.Context, wt *watch, wait time.Duration) {
	if !slices.ContainsFunc(wt.companions, func(c *intake.Companion) bool { return !c.MayWait(wait) }) {
		wt.next = time.Now().Add(max(wait, time.Millisecond)) // what was just checked is not checked at once
		e.agenda.add(wt)
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
