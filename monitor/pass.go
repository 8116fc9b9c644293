// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"time"

	"overdue/internal/servicebus/link"
)

// windowMargin MUST NOT be less than the scheduler's takeWindow: decision 0010. It widens the window in which a message is looked for, since the nodes of a
// broker need not agree to the millisecond.
const windowMargin = 250 * time.Millisecond

// stampGrain is what an AMQP timestamp is cut to: the instant itself may be later by that.
const stampGrain = time.Millisecond

// pass looks, judges, expires and looks again, for all the watches given, so that
// each has a verdict. When it returns an error none has, except for what was expired by hand:
// that only has to be told.
func (e *entity) pass(ctx context.Context, due []*watch) error {
	e.passing = due
	defer func() { e.passing = nil }()
	if err := e.recallNudged(ctx, due); err != nil {
		return err
	}
	looking := make([]*watch, 0, len(due))
	for _, wt := range due {
		if wt.missed == nil {
			looking = append(looking, wt)
		}
	}
	// ④ look and judge
	began := time.Now()
	if err := e.look(ctx, looking); err != nil {
		return err
	}
	e.looked = time.Since(began)
	e.work.limit(-1)
	now := e.w.clock.now().Add(-stampGrain)
	var overdue, gone []*watch
	for _, wt := range looking {
		wt.judgement = judgement{verdict: Gone}
		if m := wt.want.found; m != nil {
			wt.alive = now
			wt.judgement = e.judge(wt, now)
		}
		if wt.judgement.verdict == Overdue {
			overdue = append(overdue, wt)
		}
	}
	// ⑤ expire; what stays is in flight, what goes is gone
	if err := e.expire(ctx, overdue); err != nil {
		return err
	}
	for _, wt := range looking {
		if wt.judgement.verdict == Gone && wt.missed == nil {
			gone = append(gone, wt)
		}
	}
	return e.reckon(ctx, gone)
}

// look finds the messages of the watches on the work queue. Those that are seen to be in the
// dead-letter queue on the way have their missed set.
func (e *entity) look(ctx context.Context, watches []*watch) error {
	wants := make([]*want, len(watches))
	for i, wt := range watches {
		wants[i] = e.seeking(wt)
	}
	better := e.chooser(nil)
	if err := e.work.findNumbered(ctx, wants, better); err != nil {
		return err
	}
	// A pass expires whatever is overdue, so what was seen on the work queue and is there no
	// more is probably a dead letter: its number tells, and spares a search.
	if err := e.recall(ctx, watches); err != nil {
		return err
	}
	wants = wants[:0]
	for _, wt := range watches {
		if wt.missed == nil {
			wants = append(wants, &wt.want)
		}
	}
	if err := e.work.findNamed(ctx, wants, better); err != nil {
		return err
	}
	var taken map[seat]bool
	for _, w := range wants {
		if w.found == nil && w.spare != nil {
			if taken == nil {
				taken = e.taken()
			}
			w.found = w.spare
			w.namesakes = w.namesakes || taken[seatOf(w.found)]
			taken[seatOf(w.found)] = true
		}
		e.identify(w)
	}
	return nil
}

// seeking is the want of wt, for a look that begins.
func (e *entity) seeking(wt *watch) *want {
	w := &wt.want
	w.found, w.spare = nil, nil
	if w.number == 0 {
		w.sought(&wt.ref)
		w.hint = e.hint(w)
		w.endless = e.traits.known && e.traits.DefaultMessageTimeToLive == 0
	}
	return w
}

// identify takes what was found on the work queue for the messages of the wants, from now on. A scheduled message gets another
// number when it is activated.
func (e *entity) identify(wants ...*want) {
	for _, w := range wants {
		if w.found == nil || pending(w.found) {
			continue
		}
		if w.number == 0 {
			w.doubt(w.found)
			w.namesakes = w.namesakes || !w.agreed && e.foreign(w.ref, w.found)
		}
		w.seat = seatOf(w.found)
	}
}

// chooser prefers, where a message-id repeats, the message whose deadline is the one that the
// watch was sent with and that suits, and gives each message to one watch of this entity.
func (e *entity) chooser(suits func(*link.Message) bool) chooser {
	taken := e.taken()
	return func(w *want, m *link.Message) bool {
		n := seatOf(m)
		if taken[n] || !agrees(w.ref, m, e.traits.Settings) || suits != nil && !suits(m) {
			return false
		}
		taken[n] = true
		return true
	}
}

// taken are the messages that watches of this entity are over.
func (e *entity) taken() map[seat]bool {
	taken := map[seat]bool{}
	for _, list := range [][]*watch{e.watches, e.waiting.watches, e.passing} {
		for _, wt := range list {
			taken[wt.want.seat] = true
			if wt.missed != nil {
				taken[seat{wt.missed.SequenceNumber, wt.missed.EnqueuedTime.UnixMilli()}] = true
			}
		}
	}
	return taken
}

// conclude acts upon the verdict about a watch that is not missed: let go, or look again.
func (e *entity) conclude(ctx context.Context, wt *watch) {
	switch v := wt.judgement.verdict; {
	case v == Gone && wt.open(e.w.clock.now()) > 0:
		// Its send may still be under way: the companion can be the faster of the two.
		wt.looks++
		e.later(ctx, wt, min(wt.open(e.w.clock.now()), lookAgainMin<<min(wt.looks, 10)))
	case v == Gone && e.traits.forwardTo != "":
		e.follow(ctx, wt)
	case v == Gone:
		e.ended(wt)
		wt.held.done(ctx, nil)
	case v == NotDue:
		e.postpone(ctx, wt)
	case wt.doomed:
		e.later(ctx, wt, e.doomedWait(wt))
	case !wt.vanished.IsZero():
		e.later(ctx, wt, vanishAgain)
	case e.w.crowded():
		e.anew(ctx, wt, e.w.clock.now().Add(crowdedWait))
	default:
		wt.looks++
		wait := min(lookAgainMin*time.Duration(wt.looks), lookAgainMax)
		if e.traits.partitioned {
			wait = max(wait, 4*e.looked) // it may have read the whole queue
		}
		e.later(ctx, wt, e.untilComplete(wt, wait))
	}
}

// postpone looks again at the deadline, or when there is something to tell before: from hand if that is near, else by
// a companion that is due then.
func (e *entity) postpone(ctx context.Context, wt *watch) {
	next := e.nextMoment(wt)
	if next.IsZero() {
		wt.held.done(ctx, nil) // all is told
		return
	}
	wait := next.Add(stampGrain).Sub(e.w.clock.now())
	if wait <= nearDeadline && !e.w.behind(next) {
		e.later(ctx, wt, max(wait, time.Millisecond))
		return
	}
	e.anew(ctx, wt, next)
}
