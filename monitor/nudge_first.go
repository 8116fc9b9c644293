// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"
)

// Where deadlines are being missed, what matters is that the broker is woken, and a nudge wakes it for all that is overdue,
// whoever is to be notified of it. So there the nudge comes first, without a check: it cannot expire anything early, since the
// broker goes by its own stamps. What became of each message is found out afterwards, for many of them together: their
// dead letters stand on the same pages.
//
// Elsewhere a check comes first. It is the only evidence where dead letters do not stay (disappear.go), and where deadlines
// are met it is all that there is to do: a receiver on a queue that is served counts as a listener for nothing.

const (
	// missedRecently is for how long after a missed deadline the nudge comes first.
	missedRecently = 30 * time.Second
	// suspectedFor is for how long it does where that is only suspected.
	suspectedFor = 2 * time.Second
	// notFoundRest is for how long it does not where dead letters are taken away, or may be: what was nudged for was not found there, and
	// none that would be known to have stayed.
	notFoundRest = time.Minute
	// peekBudget is how many peeks a first check may take. One that takes more goes through a long queue, where nobody keeps up:
	// to nudge and to read the dead letters is probably cheaper.
	peekBudget = 8
	// pageRest is for how long no dead letters are read, per peek that the last reading took, and waitMost bounds that.
	// So few messages are notified at once, and of many only so much later that they share pages.
	pageRest = 10 * time.Millisecond
	waitMost = time.Second
)

// errTooManyPeeks says that a check has used up its budget.
var errTooManyPeeks = errors.New("the check takes too many peeks")

// waiting is the watches that wait for a nudge, and then for what comes with the same page.
type waiting struct {
	watches []*watch
	rest    time.Time // by our clock: no dead letters are read before
}

// mayNudgeFirst reports whether a nudge without a check may be made on e: the broker expires by itself what is overdue there, all
// that is left of it is in the dead-letter queue, and one receiver reaches everything.
func (e *entity) mayNudgeFirst() bool {
	t := &e.settings
	if t.Strategy == strategyScan || t.Strategy == strategySession || t.topic || t.sessions || t.drops || t.partitioned || e.work.cursor ||
		t.forwardTo != "" || t.forwardDead != "" {
		return false
	}
	f := e.w.states.get(e.key)
	return f.disappeared == 0 && !f.doubted()
}

// missesDeadlines reports whether deadlines are being missed on e.
func (e *entity) missesDeadlines() bool {
	f := e.w.states.get(e.key)
	return !f.missed.IsZero() && time.Since(f.missed) < missedRecently || !f.suspected.IsZero() && time.Since(f.suspected) < suspectedFor
}

// untried reports whether nothing was tried yet for the message of wt.
func (wt *watch) untried() bool {
	return wt.missed == nil && !wt.beforeDeadline() && !wt.awaitsNudge && wt.triedAt.IsZero() && wt.checks == 0 && !wt.duplicate && wt.duplicates == 0 && wt.hops == 0 &&
		(wt.slot != nil || !wt.ref.From.IsZero())
}

// due is when the message of wt is overdue, as far as is known.
func (wt *watch) due() time.Time {
	switch {
	case wt.slot != nil:
		return wt.slot.SlotEnd
	case !wt.judgement.deadline.IsZero():
		return wt.judgement.deadline
	}
	return wt.ref.Deadline
}

// awaitNudge takes those of the watches that need no look before a nudge, asks for the nudge, and returns the others.
func (e *entity) awaitNudge(ctx context.Context, due []*watch) []*watch {
	var rest []*watch
	for _, wt := range due {
		if !wt.untried() {
			rest = append(rest, wt)
			continue
		}
		e.nudgeFor(ctx, wt)
		wt.awaitsNudge = true
		e.waiting.watches = append(e.waiting.watches, wt)
	}
	return rest
}

// nudgeFor asks for the nudge that wt waits for, unless that was done.
func (e *entity) nudgeFor(ctx context.Context, wt *watch) {
	if wt.nudge == 0 && wt.untried() {
		wt.nudge = e.nudger.want(ctx, wt.due())
	}
}

// nudgedWatches takes those of the waiting whose nudge has been made, once the rest is over.
func (e *entity) nudgedWatches(now time.Time) (ready []*watch) {
	g := &e.waiting
	if len(g.watches) == 0 || now.Before(g.rest) && !e.w.crowded() {
		return nil
	}
	made := e.nudger.made()
	ready = filter(g.watches, func(wt *watch) bool { return wt.nudge <= made })
	if len(ready) > 0 {
		g.watches = filter(g.watches, func(wt *watch) bool { return wt.nudge > made })
	}
	return ready
}

// deadLetterSearch is the check for the dead letters of watches that a nudge was made for.
type deadLetterSearch struct {
	watches []*watch
	wants   []*want // of each of them
}

// deadLetterSearchFor returns the check for those of the watches whose dead letters have not been searched for yet.
func (e *entity) deadLetterSearchFor(watches []*watch) *deadLetterSearch {
	r := &deadLetterSearch{}
	for _, wt := range watches {
		if wt.awaitsNudge && !wt.deadLetterSought && wt.missed == nil {
			w := &want{identity: wt.want.identity, firstFit: wt.want.firstFit}
			w.seek(&wt.ref)
			// It is not searched for on the work queue before, so it must not be another message with the same id.
			w.from = w.likely
			r.wants, r.watches = append(r.wants, w), append(r.watches, wt)
		}
	}
	return r
}

// tookDeadLetters takes over what the check has found for those of the watches that looked says it is over for.
func (e *entity) tookDeadLetters(ctx context.Context, r *deadLetterSearch, looked func(*want) bool) error {
	var repeatable []int64
	for i, wt := range r.watches {
		if !looked(r.wants[i]) {
			continue
		}
		wt.deadLetterSought = true
		wt.want.merge(r.wants[i])
		if m := r.wants[i].found; m != nil && expired(m) {
			wt.missed = e.missed(wt, m)
			if !wt.ref.Once {
				repeatable = append(repeatable, m.SequenceNumber)
			}
		}
	}
	return e.noticeCopies(ctx, repeatable)
}

// readNudgedDeadLetters finds the dead letters of those of the watches that a nudge was made for. What it does not find goes through
// the pass as if there had been none.
func (e *entity) readNudgedDeadLetters(ctx context.Context, watches []*watch) error {
	r := e.deadLetterSearchFor(watches)
	if len(r.wants) == 0 {
		return nil
	}
	if err := e.dead.find(ctx, r.wants, e.chooser(e.notNotified)); err != nil {
		return err
	}
	return e.tookDeadLetters(ctx, r, func(*want) bool { return true })
}

// copyGap is how many messages behind one at least are read for a copy of it, where there are as many.
const copyGap = 64

// noticeCopies reads what stands on the work queue behind messages that have these numbers, whose sends may have been made
// twice: seekNamesakes goes by what was seen.
func (e *entity) noticeCopies(ctx context.Context, numbers []int64) error {
	slices.Sort(numbers)
	reached := int64(0)
	for _, n := range numbers {
		if n+copyGap <= reached {
			continue
		}
		page, err := e.work.peek(ctx, max(n, reached)+1, pageSize)
		if err != nil || len(page) == 0 {
			return err // nothing stands there
		}
		reached = page[len(page)-1].SequenceNumber
	}
	return nil
}

// suspect takes note that a check was too costly: then deadlines are taken to be missed for a while. Where that has proved wrong
// the next check may take as long as it needs.
func (e *entity) suspect() {
	e.w.states.update(e.key, func(f *entityState) {
		if f.suspected.After(f.missed) {
			f.notFound = time.Now()
		}
		f.suspected = time.Now()
	})
	e.nudgesFirst.Store(true)
}

// learnFromNudges takes note of what has come of a pass for which nudges had been made. What is gone and has left no dead letter was received
// in time, or somebody takes the dead letters away: those that were seen shortly before tell which.
func (e *entity) learnFromNudges(ctx context.Context, due []*watch) {
	found, lost := 0, 0
	for _, wt := range due {
		switch {
		case wt.missed != nil && wt.ref.Missed == nil && wt.missed.DeadLetterReason == reasonExpired:
			found++
		case wt.awaitsNudge && wt.judgement.verdict == gone:
			lost++
		}
	}
	if found == 0 && lost == 0 {
		return
	}
	fresh := e.dead.recentDeadLetter(e.w.clock.now())
	known := e.w.states.get(e.key)
	stays, taken := false, false
	if known.recentLetter != (identity{}) && (found < lost || found > 0 && known.doubted()) {
		stays, taken = e.deadLetterStays(ctx, known.recentLetter)
	}
	if taken {
		fresh, e.dead.lastExpired = identity{}, seenDeadLetter{}
	}
	e.w.states.update(e.key, func(f *entityState) {
		if found > 0 {
			f.missed = time.Now()
		}
		f.recentLetter = fresh
		switch {
		case taken:
			f.notFound, f.taken = time.Now(), time.Now()
		case stays && time.Since(f.taken) > notFoundRest:
			f.notFound = time.Time{}
		case !stays && found == 0 && fresh == identity{}:
			f.notFound = time.Now()
		}
	})
}

// deadLetterStays looks whether a dead letter that was seen before stays where it is, or was taken away.
func (e *entity) deadLetterStays(ctx context.Context, letter identity) (stays, taken bool) {
	page, err := e.dead.peek(ctx, letter.number, 1)
	if err != nil {
		e.log.Debug("dead letter not read", zap.Error(err)) // the next one at any will tell whether that lasts
		return false, false
	}
	stays = len(page) > 0 && identityOf(page[0]) == letter
	return stays, !stays
}

// doubted reports whether dead letters may not stay where they are.
func (f *entityState) doubted() bool {
	return !f.notFound.IsZero() && time.Since(f.notFound) <= notFoundRest
}

// restAfter lets some time pass before dead letters are read anew, after so many peeks.
func (e *entity) restAfter(peeks int) {
	e.waiting.rest = time.Now().Add(min(time.Duration(peeks)*pageRest, waitMost))
}
