// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"errors"
	"slices"
	"time"

	"overdue/monitor/intake"
	"overdue/monitor/nudge"
	"overdue/monitor/search"

	"go.uber.org/zap"
)

// handleDue checks watches that are due, and hands each one on: to the sinks, to another
// check, or to its end. nudged says that they have waited for a nudge.
func (e *entity) handleDue(ctx context.Context, due []*watch, nudged bool) {
	if due = e.skipSettled(ctx, due); len(due) == 0 {
		return
	}
	at := e.w.clock.Latest() // a message that the check finds was there at this instant, or later
	due, handed, err := e.checkDue(ctx, due, nudged)
	if handed {
		return
	}
	missing := entityMissing(err)
	e.noteOutcome(ctx, missing, err, len(due))
	e.handOn(ctx, due, at, missing, err)
}

// checkDue checks watches, or hands all of them to the nudger or the subscriptions. It returns
// those that it has checked. Where deadlines are being missed, a nudge comes first, see
// nudge_first.go.
func (e *entity) checkDue(ctx context.Context, due []*watch, nudged bool) (checked []*watch, handed bool, err error) {
	if err := e.describe(ctx, due); err != nil {
		return due, false, err
	}
	e.nudger.SetDefaultLife(e.settings.DefaultMessageTimeToLive)
	if !e.nudgeReachesAll() {
		e.nudger.Forget()
	}
	bounded, err := e.chooseOrder(ctx, due, nudged)
	if err != nil {
		return due, false, err
	}
	if e.nudgesFirst.Load() && !nudged {
		if err := e.cacheSlots(ctx, due); err != nil {
			return due, false, err
		}
		if due = e.awaitNudge(ctx, due, e.hasMany() && e.deadLetters() == search.LettersStay); len(due) == 0 {
			return nil, true, nil
		}
	}
	if bounded {
		e.work.Limit(peeksFirst + len(filter(due, func(wt *watch) bool { return wt.slot == nil })))
		defer e.work.Limit(-1)
	}
	if nudged {
		e.findCached(due)
	}
	slots := slices.ContainsFunc(due, func(wt *watch) bool { return wt.slot != nil })
	e.notifiedAtOnce = 0
	if due, err = e.searchSlots(ctx, due); err == nil {
		if nudged && slots && len(due) == 0 && e.notifiedAtOnce == 0 && e.deadLetters() == search.LettersTaken {
			e.noteOrder(nudge.NothingFound)
		}
		if due = e.awaitDeadlines(ctx, due); len(due) == 0 {
			return nil, true, nil
		}
	}
	if err == nil && e.settings.topic {
		e.spreadToSubscriptions(ctx, due)
		return nil, true, nil
	}
	if err == nil {
		due, err = e.collectMany(ctx, due)
	}
	if err == nil {
		err = e.check(ctx, due)
	}
	switch {
	case errors.Is(err, search.ErrTooManyPeeks):
		return e.nudgeInstead(ctx, due)
	case err == nil:
		err = e.learnFromNudges(ctx, due)
	}
	return due, false, err
}

// nudgeInstead has a nudge come before the check of due, which takes too many peeks. It returns the
// watches that are checked first all the same.
func (e *entity) nudgeInstead(ctx context.Context, due []*watch) (rest []*watch, handed bool, err error) {
	e.work.Limit(-1)
	if err := errors.Join(e.checkFell(ctx, due), e.cacheSlots(ctx, due)); err != nil {
		return due, false, err
	}
	return e.awaitNudge(ctx, due, true), false, nil
}

// noteOutcome records what the error of a check says of the connection and of the entity.
func (e *entity) noteOutcome(ctx context.Context, missing bool, err error, messages int) {
	e.w.outage.Note(e.w.log, err)
	e.noteMissing(missing, err)
	if missing {
		e.forget("not-found")
	}
	if err != nil && !missing {
		logFailed(e.log, "check failed", err, zap.Int("messages", messages))
		e.closeViews(ctx)
	}
}

// handOn hands each watch on after a check. A check that failed has decided nothing and is
// repeated, but missed deadlines that it found are notified.
func (e *entity) handOn(ctx context.Context, due []*watch, at time.Time, missing bool, err error) {
	var missed, lost []*watch
	for _, wt := range due {
		if err == nil {
			e.remind(ctx, wt, at)
		}
		if err == nil || wt.state == stateMissed {
			e.watchDuplicates(wt)
		}
		switch {
		case wt.state == stateMissed:
			e.noteLateLetter(wt)
			if e.settings.forwardDead != "" && !wt.ref.WithoutID() {
				e.w.notified.Note(e.forwardedID(wt.ref.MessageID))
			}
			missed = append(missed, wt)
		case missing && e.isGivenUp(wt):
			lost = append(lost, wt)
		case missing:
			e.awaitEntity(ctx, wt)
		case err != nil:
			e.later(ctx, wt, e.w.retryAfter(wt, err))
		default:
			wt.failures = 0
			e.conclude(ctx, wt)
		}
	}
	e.giveUp(ctx, lost)
	for _, wt := range missed {
		e.kept.Use(search.Identity{Number: wt.missed.SequenceNumber, Enqueued: wt.missed.EnqueuedTime.UnixMilli()})
		e.w.notify(ctx, e.name, wt) // ⑥
	}
}

// check gives every watch a verdict: it finds the messages, judges them by their stamps,
// expires the overdue ones, and finds out what became of those that are gone. After an error no
// watch has a verdict. Messages that this worker has dead-lettered itself have their missed
// field set all the same.
func (e *entity) check(ctx context.Context, due []*watch) error {
	e.checking = due
	defer func() { e.checking = nil }()
	if err := e.readNudgedDeadLetters(ctx, due); err != nil {
		return err
	}
	e.takeKept(due)
	undecided := unaccounted(due)
	// ④ check
	defer e.openAhead(ctx, undecided)()
	began, asked, peeks := time.Now(), e.w.clock.Now(), e.work.Peeks
	if err := e.find(ctx, undecided); err != nil {
		return err
	}
	before, certain := e.w.clock.NotAfter()
	e.searchTook = time.Since(began)
	switch e.peekedAt = began; {
	case e.opened == nil:
		e.peekedAt = time.Time{} // a receiver is opened before the nudge
	case e.work.Peeks == peeks+1:
		e.peekedAt = time.Now() // one answer for all of them
	}
	e.work.Limit(-1)
	now := e.w.clock.Now().Add(-e.w.clock.Grain())
	needsProof := e.needsProof()
	var toExpire, left []*watch
	for _, wt := range undecided {
		wt.evidence.expired, wt.evidence.none = wt.evidence.atNudge, false
		seen := notFound
		if m := wt.want.Found; m != nil {
			wt.evidence.expired, wt.evidence.atNudge, wt.evidence.awaited = nil, nil, 0
			wt.seenAt, wt.evidence.presentAt = now, began
			if needsProof { // or dead letters are the evidence
				wt.evidence.present = m
			}
			wt.learnID(m)
			seen = foundEarly
			if wt.judgement = e.judge(wt, now); wt.judgement.Overdue {
				seen = foundOverdue
				wt.evidence.shownExpired = wt.judgement.Native && wt.judgement.Expiry.Before(asked)
				toExpire = append(toExpire, wt)
			}
		}
		wt.see(seen)
	}
	// ⑤ expire: a message that stays is in flight
	if err := e.expire(ctx, toExpire); err != nil {
		return err
	}
	for _, wt := range undecided {
		if wt.state == stateGone && (!certain || e.settings.forwardTo != "" || !e.dueAfter(wt, before)) {
			left = append(left, wt)
		}
	}
	return e.decideGone(ctx, left)
}

// dueAfter reports whether the deadline of wt, which was not seen yet, cannot come before t. Then a
// message that is gone by t was received in time.
func (e *entity) dueAfter(wt *watch, t time.Time) bool {
	if wt.ref.From.IsZero() || wt.want.Number != 0 || wt.duplicates != 0 || e.hadOtherDefault(wt) {
		return false
	}
	from := wt.ref.From.Add(-search.StampPrecision)
	if life := e.settings.DefaultMessageTimeToLive; life > 0 && !from.Add(life).After(t) {
		return false
	}
	return wt.ref.DeadlineAt(from).After(t)
}

// hadOtherDefault reports whether the message of wt may have got a default time to live that is not
// in force any more, which may have been shorter.
func (e *entity) hadOtherDefault(wt *watch) bool {
	return !wt.ref.From.IsZero() && wt.ref.From.Before(e.settings.DefaultSince)
}

// awaitDeadlines keeps the messages of slots that are not due yet until they are. It returns the
// other watches.
func (e *entity) awaitDeadlines(ctx context.Context, due []*watch) (rest []*watch) {
	for _, wt := range due {
		if wait := e.w.clock.Until(wt.due().Add(e.w.clock.Grain())); wait > 0 && wt.ref.Once && wt.want.Number != 0 && wt.seenAt.IsZero() && !wt.deadLetterSought && !wt.nudgeAwaited {
			wt.deadLetterSought = true
			e.later(ctx, wt, wait)
			continue
		}
		rest = append(rest, wt)
	}
	return rest
}

// conclude ends a watch whose deadline was not missed, or has it checked again.
func (e *entity) conclude(ctx context.Context, wt *watch) {
	switch v := wt.state; {
	case v == stateGone && wt.open(e.w.clock.Now()) > 0:
		// Its send may still be in flight: the companion can be faster.
		wt.checks++
		e.later(ctx, wt, min(wt.open(e.w.clock.Now()), checkAgainMin<<min(wt.checks, 10)))
	case v == stateGone && e.mayHaveLetter(wt):
		wt.evidence.awaited++
		e.later(ctx, wt, letterWait*time.Duration(wt.evidence.awaited))
	case v == stateGone && e.settings.forwardTo != "":
		e.follow(ctx, wt)
	case v == stateGone:
		e.countGone(wt)
		wt.companion.Done(ctx, nil)
	case v == stateWaiting:
		e.postpone(ctx, wt)
	case v == stateExpiring:
		e.later(ctx, wt, max(e.w.clock.Until(wt.judgement.Expiry.Add(e.w.clock.Grain())), time.Millisecond))
	case wt.attempt.left == spared:
		e.later(ctx, wt, e.droppedWait(wt))
	default:
		wt.checks++
		wait := min(checkAgainMin*time.Duration(wt.checks), checkAgainMax)
		if e.unordered() {
			wait = max(wait, 4*e.searchTook) // it may have read the whole queue
		}
		if e.w.crowded() {
			wait = max(wait, intake.CrowdedWait)
		}
		e.later(ctx, wt, e.untilComplete(wt, wait))
	}
}

// postpone has wt checked again at its deadline, or at the first reminder before. If that is
// near, the watch stays in hand. Otherwise its companion is rewritten.
func (e *entity) postpone(ctx context.Context, wt *watch) {
	next := e.nextReminder(wt)
	if next.IsZero() {
		wt.companion.Done(ctx, nil) // nothing is left to notify of
		return
	}
	next = next.Add(e.w.clock.Grain()) // a stamp may be cut, and so much earlier than it says
	wait := e.w.clock.Until(next)
	if wait <= nearDeadline && !e.w.clock.Behind(next) {
		e.nudgeAhead(ctx, wt)
		e.later(ctx, wt, max(wait, time.Millisecond))
		return
	}
	e.rewrite(ctx, wt, next)
}
