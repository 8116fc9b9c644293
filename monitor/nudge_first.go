// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"slices"
	"time"

	"overdue/internal/servicebus/link"
	"overdue/monitor/nudge"
	"overdue/monitor/search"
)

// Where deadlines are being missed, the nudge comes first, without a check. One nudge makes the
// broker expire everything that is overdue, and cannot expire anything early, since the broker
// goes by its own stamps. The check follows for many messages together: their dead letters are
// on the same pages.
//
// Elsewhere the check comes first. It is the only evidence where dead letters are taken away
// (evidence.go), and all there is to do where deadlines are met: an open receiver is a listener.

const (
	// Checks cannot keep up, or cost too much, where behindMin messages that were seen before
	// become due within soonWithin, or a slot has ended lateAfter ago.
	behindMin  = 64
	soonWithin = 100 * time.Millisecond
	lateAfter  = 250 * time.Millisecond
	manyMin    = 250 // so many dead letters at once are many
	// peeksFirst bounds the peeks of a first check, besides one for each message that a companion
	// names. A check that needs more reads through a long queue, where a nudge is cheaper.
	peeksFirst = 24
	// After a reading of dead letters, none are read for peekRest times its peeks, or pageRest
	// times the square of these, but waitMost at most. So few messages are notified soon, and of
	// many only so much later that they share pages.
	peekRest   = 3 * time.Millisecond
	pageRest   = 80 * time.Microsecond
	waitMost   = 1250 * time.Millisecond
	lostRarely = 8                     // dead letters are read behind nudges for each one that is lost
	seenLate   = 50 * time.Millisecond // after its send, a message is mostly enqueued
	copyGap    = 64                    // messages behind each one are read for copies of it
)

// waiting is the watches that wait for a nudge, and then for what comes with the same page.
type waiting struct {
	watches []*watch
	rest    time.Time // by our clock: no dead letters are read before
}

// mayNudgeFirst reports whether a nudge may precede the check.
func (e *entity) mayNudgeFirst() bool {
	return e.nudgeReachesAll() && e.order() != nudge.CheckOnly && !e.w.states.get(e.key).lateLetters
}

// nudgeReachesAll reports whether the broker expires overdue messages of e by itself, all of them
// end in its dead-letter queue, and one receiver reaches them.
func (e *entity) nudgeReachesAll() bool {
	t := &e.settings
	return t.Strategy != strategyScan && t.Strategy != strategySession && !t.topic && !t.sessions && !t.drops && !e.unordered() &&
		t.forwardTo == "" && t.forwardDead == ""
}

// order returns what comes first on e, where a nudge may.
func (e *entity) order() nudge.OrderState {
	return e.w.states.get(e.key).order.Current(time.Now())
}

// hasMany reports whether there were so many deadlines a moment ago that checks do not keep up.
func (e *entity) hasMany() bool {
	return e.w.states.get(e.key).order.Many(time.Now())
}

// noteOrder moves the order on. That a check found nothing counts from its beginning.
func (e *entity) noteOrder(event nudge.OrderEvent) {
	now := time.Now()
	if event == nudge.NothingFound {
		now = e.began
	}
	e.w.states.update(e.key, func(f *entityState) { f.order.Observe(event, now) })
}

// chooseOrder decides whether a nudge or the check of due comes first. The check is bounded in its
// peeks as long as a nudge may come instead.
func (e *entity) chooseOrder(ctx context.Context, due []*watch, nudged bool) (bounded bool, err error) {
	may := e.mayNudgeFirst()
	bounded = may && !nudged && !slices.ContainsFunc(due, func(wt *watch) bool { return !e.untried(wt) })
	if bounded && e.order() == nudge.CheckFirst && e.fallsBehind(due) {
		err = e.checkFell(ctx, due)
	}
	e.setNudgesFirst()
	return bounded, err
}

// setNudgesFirst has nudges follow the order that is known now.
func (e *entity) setNudgesFirst() {
	e.nudgesFirst.Store(e.mayNudgeFirst() && e.order() == nudge.NudgeFirst)
}

// missedLately reports whether a deadline was missed a moment ago, while it is unknown whether dead
// letters stay. To find out before the next deadline saves the check of it.
func (e *entity) missedLately() bool {
	return e.deadLetters() == search.LettersUnknown && e.w.states.get(e.key).deadLetters.SeenSince(time.Now().Add(-confirmWithin))
}

// fallsBehind reports whether checks cannot keep up with the deadlines, or cost too much.
func (e *entity) fallsBehind(due []*watch) bool {
	soon := e.w.clock.Now().Add(soonWithin)
	near := func(wt *watch) bool { return wt.want.Number != 0 && !wt.due().After(soon) && e.untried(wt) }
	late := func(wt *watch) bool { return wt.slot != nil && wt.due().Before(soon.Add(-lateAfter-soonWithin)) }
	return len(filter(due, near))+len(filter(e.watches, near)) >= behindMin || slices.ContainsFunc(due, late)
}

// untried reports whether nothing has been done for wt yet.
func (e *entity) untried(wt *watch) bool {
	return wt.state != stateMissed && !e.beforeDeadline(wt) && !e.awaitsReminder(wt) && !wt.nudgeAwaited && !wt.attempt.made() && wt.checks == 0 && wt.duplicates == 0 && wt.hops == 0 &&
		(wt.slot != nil || !wt.ref.From.IsZero())
}

// due is the deadline of wt, as far as it is known.
func (wt *watch) due() time.Time {
	switch {
	case wt.slot != nil:
		return wt.slot.SlotEnd
	case !wt.judgement.Deadline.IsZero():
		return wt.judgement.Deadline
	}
	return wt.ref.Deadline
}

// awaitNudge requests nudges for the watches that need no check before, and keeps these until
// then. It returns the others. A message that was not seen yet is better checked first: only its
// stamp shows the instant of its deadline. With unseen, it waits for a nudge, too.
func (e *entity) awaitNudge(ctx context.Context, due []*watch, unseen bool) []*watch {
	e.findCached(due)
	e.findRecent(due)
	var rest []*watch
	for _, wt := range due {
		if !e.untried(wt) || !unseen && e.isUnseen(wt) {
			rest = append(rest, wt)
			continue
		}
		e.nudgeFor(ctx, wt)
		wt.nudgeAwaited, wt.deadLetterSought = true, false
		e.waiting.watches = append(e.waiting.watches, wt)
	}
	return rest
}

// findRecent finds messages on the page of the work queue that was read last. Where dead letters
// stay, one that is gone by now is searched for after the nudge.
func (e *entity) findRecent(due []*watch) {
	if e.needsProof() {
		return
	}
	page := e.work.Recent()
	if len(page) == 0 {
		return
	}
	named := e.namedIn(page[0].EnqueuedTime, page[len(page)-1].EnqueuedTime, filter(due, e.untried))
	if len(named) == 0 {
		return
	}
	names, choose := search.ByMessageID(named), e.chooser(nil)
	for _, m := range page {
		search.Match(names[m.MessageID], m, func(w *search.Want, m *link.Message) bool {
			return m.State == link.Active && choose(w, m)
		})
	}
	e.identify(named...)
	for _, wt := range due {
		if wt.slot == nil && wt.want.Found != nil {
			wt.judgement = e.judge(wt, e.w.clock.Now())
		}
	}
}

// isUnseen reports whether wt is over one message that was not found yet, and that is not overdue
// for certain.
func (e *entity) isUnseen(wt *watch) bool {
	return wt.slot == nil && wt.want.Number == 0 && wt.due().After(e.w.clock.Now().Add(-seenLate))
}

// nudgeAhead requests the nudge for wt before its deadline if it comes first, so that its receiver
// is open by then.
func (e *entity) nudgeAhead(ctx context.Context, wt *watch) {
	if e.nudgesFirst.Load() {
		e.nudgeFor(ctx, wt)
	}
}

// nudgeFor requests the nudge that wt waits for, once for each instant at which it seems to be due.
func (e *entity) nudgeFor(ctx context.Context, wt *watch) {
	at := wt.due().Add(e.w.clock.Grain())
	if wt.nudgeAt.Equal(at) || !e.untried(wt) {
		return
	}
	wt.nudgeAt = at
	if wt.slot == nil {
		e.nudger.Want(ctx, at)
		return
	}
	e.nudger.WantWithin(ctx, wt.slot.SlotStart(), at)
}

// nudgedWatches returns the waiting watches whose nudge has been made.
func (e *entity) nudgedWatches(now time.Time) (ready []*watch) {
	g := &e.waiting
	if len(g.watches) == 0 || (now.Before(g.rest) || e.prefetcher.Busy()) && !e.w.crowded() {
		return nil
	}
	made := e.nudger.Made().Add(-e.w.clock.Grain())
	nudged := func(wt *watch) bool { return !wt.due().After(made) }
	ready = filter(g.watches, nudged)
	g.watches = slices.DeleteFunc(g.watches, nudged)
	return ready
}

// deadLetterSearch searches for the dead letters of nudged watches.
type deadLetterSearch struct {
	watches []*watch
	wants   []*search.Want // of each of them
}

// deadLetterSearchFor prepares the search for the dead letters of those watches that have none
// yet.
func (e *entity) deadLetterSearchFor(watches []*watch) *deadLetterSearch {
	r := &deadLetterSearch{}
	for _, wt := range watches {
		if wt.nudgeAwaited && !wt.deadLetterSought && wt.state != stateMissed {
			w := &search.Want{Identity: wt.want.Identity, FirstFit: wt.want.FirstFit}
			w.Seek(&wt.ref)
			// It is not searched for on the work queue before, so it must not be another message
			// with the same id.
			w.From = w.Likely
			r.wants, r.watches = append(r.wants, w), append(r.watches, wt)
		}
	}
	return r
}

// tookDeadLetters applies the results of a search to the watches that it is over for.
func (e *entity) tookDeadLetters(ctx context.Context, r *deadLetterSearch, searched func(*search.Want) bool) error {
	var repeatable []int64
	for i, wt := range r.watches {
		if !searched(r.wants[i]) {
			continue
		}
		wt.deadLetterSought = true
		wt.want.Merge(r.wants[i])
		if m := r.wants[i].Found; m != nil && expired(m) {
			wt.expired(e.missed(wt, m))
			if !wt.ref.Once {
				repeatable = append(repeatable, m.SequenceNumber)
			}
		}
	}
	return e.noticeCopies(ctx, repeatable)
}

// readNudgedDeadLetters finds the dead letters of nudged watches. The others are checked as if
// there had been no nudge.
func (e *entity) readNudgedDeadLetters(ctx context.Context, watches []*watch) error {
	if err := e.proveNudged(ctx, watches); err != nil {
		return err
	}
	r := e.deadLetterSearchFor(watches)
	if len(r.wants) == 0 {
		return nil
	}
	if err := e.findDeadLetters(ctx, r.wants); err != nil {
		return err
	}
	return e.tookDeadLetters(ctx, r, func(*search.Want) bool { return true })
}

// noticeCopies reads the messages behind these sequence numbers, whose sends may have been
// repeated. watchDuplicates uses what it saw.
func (e *entity) noticeCopies(ctx context.Context, numbers []int64) error {
	slices.Sort(numbers)
	reached := int64(0)
	for _, n := range numbers {
		if n+copyGap <= reached {
			continue
		}
		page, err := e.work.Peek(ctx, max(n, reached)+1, search.PageSize)
		if err != nil || len(page) == 0 {
			return err // nothing stands there
		}
		reached = page[len(page)-1].SequenceNumber
	}
	return nil
}

// checkFell records that checks do not keep up, so that the nudge comes first for a while. What was
// seen so far is no evidence if nobody has observed since who else receives. So it is read again.
func (e *entity) checkFell(ctx context.Context, due []*watch) error {
	e.noteOrder(nudge.FellBehind)
	e.nudgesFirst.Store(true)
	since, observed := e.nudger.Observes()
	seen := slices.Concat(due, e.watches)
	if e.deadLetters() == search.LettersStay || observed {
		return e.seeAgain(ctx, seen, since)
	}
	began := time.Now()
	seen = filter(seen, (*watch).isSeen)
	wants, err := e.findPresent(ctx, seen, began)
	if err != nil {
		return err
	}
	if _, _, err := e.nudger.Begin(ctx, &e.work, &e.dead, began); err != nil {
		return err
	}
	e.ranges.Refresh()
	return e.keepExpired(ctx, seen, wants)
}

// seeAgain reads again the messages that were seen before the instant since of our clock, from which
// on it is observed who else receives.
func (e *entity) seeAgain(ctx context.Context, watches []*watch, since time.Time) error {
	_, err := e.findPresent(ctx, filter(watches, func(wt *watch) bool { return wt.isSeen() && wt.evidence.presentAt.Before(since) }), time.Now())
	return err
}

// isSeen reports whether wt is over a message that was found.
func (wt *watch) isSeen() bool { return wt.want.Number != 0 && wt.state != stateMissed }

// learnFromNudges records, after a check, whether deadlines are being missed. Where a nudge came
// first on a mere suspicion, and left no dead letter, nobody knows what became of the messages.
func (e *entity) learnFromNudges(ctx context.Context, due []*watch) error {
	missed, read := e.notifiedAtOnce, e.notifiedAtOnce
	var lost []*watch
	for _, wt := range due {
		switch {
		case wt.state == stateMissed && wt.ref.Missed == nil && wt.missed.DeadLetterReason == search.ReasonExpired:
			missed++
			if wt.nudgeAwaited {
				read++
			}
		case wt.nudgeAwaited && wt.state == stateGone:
			lost = append(lost, wt)
		}
	}
	if read > lostRarely*len(lost) {
		e.noteOrder(nudge.LettersRead)
	}
	switch {
	case missed > 0 || len(lost) == 0 && e.missedLately():
		if err := e.keepConfirmed(ctx); err != nil {
			return err
		}
		if e.deadLetters() == search.LettersStay {
			e.noteOrder(nudge.LettersStayed)
			e.setNudgesFirst()
		}
		if missed >= manyMin {
			e.noteOrder(nudge.ManyMissed)
		}
	case len(lost) > 0 && e.deadLetters() != search.LettersStay:
		e.noteOrder(nudge.NothingFound)
		for _, wt := range lost {
			wt.evidence.none = true
		}
	}
	return nil
}
