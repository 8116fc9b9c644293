// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"errors"
	"slices"
	"time"

	"overdue/internal/servicebus/link"
	"overdue/monitor/judge"
	"overdue/monitor/search"

	"go.uber.org/zap"
)

// handleDue checks watches that are due, and hands each one on: to the sinks, to another
// check, or to its end. nudged says that they have waited for a nudge.
func (e *entity) handleDue(ctx context.Context, due []*watch, nudged bool) {
	if due = e.skipSettled(ctx, due); len(due) == 0 {
		return
	}
	at := e.w.latest() // a message that the check finds was there at this instant, or later
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
	mayNudge := e.mayNudgeFirst()
	e.nudgesFirst.Store(mayNudge && e.order() == nudgeFirst)
	if e.nudgesFirst.Load() && !nudged {
		if err := e.cacheSlots(ctx, due); err != nil {
			return due, false, err
		}
		if due = e.awaitNudge(ctx, due, false); len(due) == 0 {
			return nil, true, nil
		}
	}
	if mayNudge && !nudged && !slices.ContainsFunc(due, func(wt *watch) bool { return !wt.untried() }) {
		if e.fallsBehind(due) {
			e.checkFell()
			return e.awaitNudge(ctx, due, true), false, nil
		}
		e.work.Limit(peekBudget(due))
		defer e.work.Limit(-1)
	}
	slots := slices.ContainsFunc(due, func(wt *watch) bool { return wt.slot != nil })
	if due, err = e.searchSlots(ctx, due); err == nil {
		if nudged && slots && len(due) == 0 && e.deadLetters() == search.LettersTaken {
			e.noteOrder(nothingFound)
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
		e.checkFell()
		return e.awaitNudge(ctx, due, true), false, nil
	case err == nil:
		err = e.learnFromNudges(ctx, due)
	}
	return due, false, err
}

// noteOutcome records what the error of a check says of the connection and of the entity.
func (e *entity) noteOutcome(ctx context.Context, missing bool, err error, messages int) {
	e.w.outage.noteResult(e.w.log, err)
	e.noteMissing(missing, err)
	if missing {
		e.forget("not-found")
	}
	if err != nil && !missing {
		logFailed(e.log, "check failed", err, zap.Int("messages", messages))
		e.work.Close(ctx)
		e.dead.Close(ctx)
		e.transfer.Close(ctx)
		e.deadTarget.Close(ctx)
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
	undecided := make([]*watch, 0, len(due))
	for _, wt := range due {
		if wt.state != stateMissed {
			undecided = append(undecided, wt)
		}
	}
	// ④ check
	began := time.Now()
	if err := e.find(ctx, undecided); err != nil {
		return err
	}
	before, certain := e.w.notAfter()
	e.searchTook = time.Since(began)
	e.work.Limit(-1)
	now := e.w.clock.now().Add(-search.StampPrecision)
	var toExpire, left []*watch
	for _, wt := range undecided {
		wt.judgement = judge.Judgement{}
		wt.expiredByNudge, wt.unaccounted = wt.atNudge, false
		seen := notFound
		if m := wt.want.Found; m != nil {
			wt.expiredByNudge, wt.atNudge = nil, nil
			wt.seenAt = now
			wt.learnID(m)
			seen = foundEarly
			if wt.judgement = e.judge(wt, now); wt.judgement.Overdue {
				seen = foundOverdue
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
	if wt.ref.From.IsZero() || wt.want.Number != 0 || wt.duplicates != 0 {
		return false
	}
	from := wt.ref.From.Add(-search.StampPrecision)
	if life := e.settings.DefaultMessageTimeToLive; life > 0 && !from.Add(life).After(t) {
		return false
	}
	return wt.ref.DeadlineAt(from).After(t)
}

// awaitDeadlines keeps the messages of slots that are not due yet until they are. It returns the
// other watches.
func (e *entity) awaitDeadlines(ctx context.Context, due []*watch) (rest []*watch) {
	now := e.w.clock.now()
	for _, wt := range due {
		if wait := wt.due().Add(search.StampPrecision).Sub(now); wait > 0 && wt.ref.Once && wt.want.Number != 0 && !wt.deadLetterSought && !wt.awaitsNudge {
			wt.deadLetterSought = true
			e.later(ctx, wt, wait)
			continue
		}
		rest = append(rest, wt)
	}
	return rest
}

// find searches the work queue for the messages of the watches. For messages that it meets in
// the dead-letter queue, it sets missed.
func (e *entity) find(ctx context.Context, watches []*watch) error {
	wants := make([]*search.Want, len(watches))
	for i, wt := range watches {
		wants[i] = e.wantOf(wt)
	}
	better := e.chooser(nil)
	if err := e.work.FindNumbered(ctx, wants, better); err != nil {
		return err
	}
	// An earlier check may have expired it: a message that was seen on the work queue and is gone
	// is probably a dead letter. Its sequence number saves a search.
	if err := e.readSeenDeadLetters(ctx, watches); err != nil {
		return err
	}
	wants = wants[:0]
	for _, wt := range watches {
		if wt.state != stateMissed {
			wants = append(wants, &wt.want)
		}
	}
	if err := e.work.FindNamed(ctx, wants, better); err != nil {
		return err
	}
	var taken map[search.Identity]bool
	for _, w := range wants {
		if w.Found == nil && w.Spare != nil {
			if taken == nil {
				taken = e.taken()
			}
			w.Found = w.Spare
			w.Duplicates = w.Duplicates || taken[search.IdentityOf(w.Found)]
			taken[search.IdentityOf(w.Found)] = true
		}
		e.identify(w)
	}
	return nil
}

// wantOf prepares the search for the message of wt.
func (e *entity) wantOf(wt *watch) *search.Want {
	w := &wt.want
	w.Found, w.Spare = nil, nil
	if w.Number == 0 {
		w.Seek(&wt.ref)
		w.Hint = e.hint(w)
		w.Endless, w.Since = e.settings.known && e.settings.DefaultMessageTimeToLive == 0, e.settings.DefaultSince
	}
	return w
}

// identify remembers the identities of the messages that were found on the work queue. A
// scheduled message gets a new sequence number at its activation, so it has none yet.
func (e *entity) identify(wants ...*search.Want) {
	for _, w := range wants {
		if w.Found == nil || search.Pending(w.Found) {
			continue
		}
		if w.Number == 0 {
			w.CheckStamp(w.Found)
			w.Duplicates = w.Duplicates || !w.Agreed && e.statesOtherDeadline(w.Ref, w.Found)
		}
		w.Identity = search.IdentityOf(w.Found)
	}
}

// chooser returns the rule for messages whose message-id repeats: it takes a message whose
// deadline is that of the reference and that suits accepts, and gives each message to one watch
// of this entity.
func (e *entity) chooser(suits func(*link.Message) bool) search.Chooser {
	taken := e.taken()
	return func(w *search.Want, m *link.Message) bool {
		n := search.IdentityOf(m)
		if taken[n] || !judge.Agrees(w.Ref, m, e.settings.Settings) || suits != nil && !suits(m) {
			return false
		}
		taken[n] = true
		return true
	}
}

// taken returns the identities of the messages that have a watch.
func (e *entity) taken() map[search.Identity]bool {
	taken := map[search.Identity]bool{}
	for _, list := range [][]*watch{e.watches, e.waiting.watches, e.checking} {
		for _, wt := range list {
			taken[wt.want.Identity] = true
			if wt.state == stateMissed {
				taken[search.Identity{Number: wt.missed.SequenceNumber, Enqueued: wt.missed.EnqueuedTime.UnixMilli()}] = true
			}
		}
	}
	return taken
}

// conclude ends a watch whose deadline was not missed, or has it checked again.
func (e *entity) conclude(ctx context.Context, wt *watch) {
	switch v := wt.state; {
	case v == stateGone && wt.open(e.w.clock.now()) > 0:
		// Its send may still be in flight: the companion can be faster.
		wt.checks++
		e.later(ctx, wt, min(wt.open(e.w.clock.now()), checkAgainMin<<min(wt.checks, 10)))
	case v == stateGone && e.settings.forwardTo != "":
		e.follow(ctx, wt)
	case v == stateGone:
		e.countGone(wt)
		wt.companion.done(ctx, nil)
	case v == stateWaiting:
		e.postpone(ctx, wt)
	case v == stateExpiring:
		e.later(ctx, wt, max(wt.judgement.Expiry.Add(search.StampPrecision).Sub(e.w.clock.now()), time.Millisecond))
	case wt.willBeDropped:
		e.later(ctx, wt, e.droppedWait(wt))
	case e.w.crowded():
		e.rewrite(ctx, wt, e.w.clock.now().Add(crowdedWait))
	default:
		wt.checks++
		wait := min(checkAgainMin*time.Duration(wt.checks), checkAgainMax)
		if e.unordered() {
			wait = max(wait, 4*e.searchTook) // it may have read the whole queue
		}
		e.later(ctx, wt, e.untilComplete(wt, wait))
	}
}

// postpone has wt checked again at its deadline, or at the first reminder before. If that is
// near, the watch stays in hand. Otherwise its companion is rewritten.
func (e *entity) postpone(ctx context.Context, wt *watch) {
	next := e.nextReminder(wt)
	if next.IsZero() {
		wt.companion.done(ctx, nil) // nothing is left to notify of
		return
	}
	wait := next.Add(search.StampPrecision).Sub(e.w.clock.now())
	if wait <= nearDeadline && !e.w.behind(next) {
		e.later(ctx, wt, max(wait, time.Millisecond))
		return
	}
	e.rewrite(ctx, wt, next)
}
