// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"overdue/monitor/search"
	"slices"
	"time"

	"go.uber.org/zap"
)

// Where deadlines are being missed, the nudge comes first, without a check. One nudge makes the
// broker expire everything that is overdue, and cannot expire anything early, since the broker
// goes by its own stamps. The check follows for many messages together: their dead letters are
// on the same pages.
//
// Elsewhere the check comes first. It is the only evidence where dead letters are taken away
// (disappeared.go). Where deadlines are met, it is all there is to do: an open receiver would
// count as a listener.

const (
	// missedRecently is how long after a missed deadline the nudge comes first.
	missedRecently = 30 * time.Second
	// suspectedFor is how long the nudge comes first where missed deadlines are only
	// suspected.
	suspectedFor = 2 * time.Second
	// notFoundRest is how long the check comes first after a nudge that left no dead letter
	// where one was expected.
	notFoundRest = time.Minute
	// peekBudget bounds the peeks of a first check. A check that needs more reads through a
	// long queue, where consumers do not keep up. There a nudge and a read of the dead letters
	// are probably cheaper.
	peekBudget = 8
	// pageRest is for how long no dead letters are read, per peek that the last reading took,
	// and waitMost bounds that. So few messages are notified at once, and of many only so much
	// later that they share pages.
	pageRest = 10 * time.Millisecond
	waitMost = time.Second
)

// waiting is the watches that wait for a nudge, and then for what comes with the same page.
type waiting struct {
	watches []*watch
	rest    time.Time // by our clock: no dead letters are read before
}

// mayNudgeFirst reports whether a nudge may precede the check: the broker expires overdue
// messages of e by itself, all of them end in its dead-letter queue, and one receiver reaches
// them.
func (e *entity) mayNudgeFirst() bool {
	t := &e.settings
	if t.Strategy == strategyScan || t.Strategy == strategySession || t.topic || t.sessions || t.drops || t.partitioned || e.work.Cursor ||
		t.forwardTo != "" || t.forwardDead != "" {
		return false
	}
	f := e.w.states.get(e.key)
	return f.disappeared == 0 && !f.doubted()
}

// missesDeadlines reports whether deadlines on e are being missed.
func (e *entity) missesDeadlines() bool {
	f := e.w.states.get(e.key)
	return !f.missed.IsZero() && time.Since(f.missed) < missedRecently || !f.suspected.IsZero() && time.Since(f.suspected) < suspectedFor
}

// untried reports whether nothing has been done for wt yet.
func (wt *watch) untried() bool {
	return wt.missed == nil && !wt.beforeDeadline() && !wt.awaitsNudge && wt.triedAt.IsZero() && wt.checks == 0 && !wt.duplicate && wt.duplicates == 0 && wt.hops == 0 &&
		(wt.slot != nil || !wt.ref.From.IsZero())
}

// due is the deadline of wt, as far as it is known.
func (wt *watch) due() time.Time {
	switch {
	case wt.slot != nil:
		return wt.slot.SlotEnd
	case !wt.judgement.deadline.IsZero():
		return wt.judgement.deadline
	}
	return wt.ref.Deadline
}

// awaitNudge requests nudges for the watches that need no check before, and keeps these until
// then. It returns the others.
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

// nudgeFor requests the nudge that wt waits for, once.
func (e *entity) nudgeFor(ctx context.Context, wt *watch) {
	if wt.nudge == 0 && wt.untried() {
		wt.nudge = e.nudger.want(ctx, wt.due())
	}
}

// nudgedWatches returns the waiting watches whose nudge has been made.
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
		if wt.awaitsNudge && !wt.deadLetterSought && wt.missed == nil {
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
func (e *entity) tookDeadLetters(ctx context.Context, r *deadLetterSearch, looked func(*search.Want) bool) error {
	var repeatable []int64
	for i, wt := range r.watches {
		if !looked(r.wants[i]) {
			continue
		}
		wt.deadLetterSought = true
		wt.want.Merge(r.wants[i])
		if m := r.wants[i].Found; m != nil && expired(m) {
			wt.missed = e.missed(wt, m)
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
	r := e.deadLetterSearchFor(watches)
	if len(r.wants) == 0 {
		return nil
	}
	if err := e.dead.Find(ctx, r.wants, e.chooser(e.notNotified)); err != nil {
		return err
	}
	return e.tookDeadLetters(ctx, r, func(*search.Want) bool { return true })
}

// copyGap is how many messages behind each one are read for copies of it.
const copyGap = 64

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

// suspect records that a check needed too many peeks, so that the nudge comes first for a
// while. If that proved wrong recently, the next check may take as long as it needs.
func (e *entity) suspect() {
	e.w.states.update(e.key, func(f *entityState) {
		if f.suspected.After(f.missed) {
			f.notFound = time.Now()
		}
		f.suspected = time.Now()
	})
	e.nudgesFirst.Store(true)
}

// learnFromNudges records the result of a check after nudges. If messages are gone and left no
// dead letter, they were received in time, or somebody takes the dead letters away. Dead
// letters that were seen shortly before show which.
func (e *entity) learnFromNudges(ctx context.Context, due []*watch) {
	found, lost := 0, 0
	for _, wt := range due {
		switch {
		case wt.missed != nil && wt.ref.Missed == nil && wt.missed.DeadLetterReason == search.ReasonExpired:
			found++
		case wt.awaitsNudge && wt.judgement.verdict == gone:
			lost++
		}
	}
	if found == 0 && lost == 0 {
		return
	}
	fresh := e.dead.RecentDeadLetter(e.w.clock.now())
	known := e.w.states.get(e.key)
	stays, taken := false, false
	if known.recentLetter != (search.Identity{}) && (found < lost || found > 0 && known.doubted()) {
		stays, taken = e.deadLetterStays(ctx, known.recentLetter)
	}
	if taken {
		fresh, e.dead.LastExpired = search.Identity{}, search.SeenDeadLetter{}
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
		case !stays && found == 0 && fresh == search.Identity{}:
			f.notFound = time.Now()
		}
	})
}

// deadLetterStays finds out whether a dead letter is still where it was, or was taken away.
func (e *entity) deadLetterStays(ctx context.Context, letter search.Identity) (stays, taken bool) {
	page, err := e.dead.Peek(ctx, letter.Number, 1)
	if err != nil {
		e.log.Debug("dead letter not read", zap.Error(err)) // the next one at any will tell whether that lasts
		return false, false
	}
	stays = len(page) > 0 && search.IdentityOf(page[0]) == letter
	return stays, !stays
}

// doubted reports whether dead letters may be taken away.
func (f *entityState) doubted() bool {
	return !f.notFound.IsZero() && time.Since(f.notFound) <= notFoundRest
}

// restAfter delays the next read of dead letters, in proportion to the peeks of the last one.
func (e *entity) restAfter(peeks int) {
	e.waiting.rest = time.Now().Add(min(time.Duration(peeks)*pageRest, waitMost))
}
