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

// stampPrecision is what an AMQP timestamp is cut to: the instant itself may be later by that.
const stampPrecision = time.Millisecond

// check looks, judges, expires and checks again, for all the watches given, so that
// each has a verdict. When it returns an error none has, except for what was expired by hand:
// that only has to be notified.
func (e *entity) check(ctx context.Context, due []*watch) error {
	e.checking = due
	defer func() { e.checking = nil }()
	if err := e.readNudgedDeadLetters(ctx, due); err != nil {
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
	if err := e.find(ctx, looking); err != nil {
		return err
	}
	e.searchTook = time.Since(began)
	e.work.limit(-1)
	now := e.w.clock.now().Add(-stampPrecision)
	var toExpire, left []*watch
	for _, wt := range looking {
		wt.judgement = judgement{verdict: gone}
		if m := wt.want.found; m != nil {
			wt.seenAt = now
			wt.judgement = e.judge(wt, now)
		}
		if wt.judgement.verdict == overdue {
			toExpire = append(toExpire, wt)
		}
	}
	// ⑤ expire; what stays is in flight, what goes is gone
	if err := e.expire(ctx, toExpire); err != nil {
		return err
	}
	for _, wt := range looking {
		if wt.judgement.verdict == gone && wt.missed == nil {
			left = append(left, wt)
		}
	}
	return e.decideGone(ctx, left)
}

// find finds the messages of the watches on the work queue. Those that are seen to be in the
// dead-letter queue on the way have their missed set.
func (e *entity) find(ctx context.Context, watches []*watch) error {
	wants := make([]*want, len(watches))
	for i, wt := range watches {
		wants[i] = e.wantOf(wt)
	}
	better := e.chooser(nil)
	if err := e.work.findNumbered(ctx, wants, better); err != nil {
		return err
	}
	// A pass expires whatever is overdue, so what was seen on the work queue and is there no
	// more is probably a dead letter: its number tells, and spares a search.
	if err := e.readSeenDeadLetters(ctx, watches); err != nil {
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
	var taken map[identity]bool
	for _, w := range wants {
		if w.found == nil && w.spare != nil {
			if taken == nil {
				taken = e.taken()
			}
			w.found = w.spare
			w.duplicates = w.duplicates || taken[identityOf(w.found)]
			taken[identityOf(w.found)] = true
		}
		e.identify(w)
	}
	return nil
}

// wantOf is the want of wt, for a check that begins.
func (e *entity) wantOf(wt *watch) *want {
	w := &wt.want
	w.found, w.spare = nil, nil
	if w.number == 0 {
		w.seek(&wt.ref)
		w.hint = e.hint(w)
		w.endless = e.settings.known && e.settings.DefaultMessageTimeToLive == 0
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
			w.checkStamp(w.found)
			w.duplicates = w.duplicates || !w.agreed && e.statesOtherDeadline(w.ref, w.found)
		}
		w.identity = identityOf(w.found)
	}
}

// chooser prefers, where a message-id repeats, the message whose deadline is the one that the
// watch was sent with and that suits, and gives each message to one watch of this entity.
func (e *entity) chooser(suits func(*link.Message) bool) chooser {
	taken := e.taken()
	return func(w *want, m *link.Message) bool {
		n := identityOf(m)
		if taken[n] || !agrees(w.ref, m, e.settings.Settings) || suits != nil && !suits(m) {
			return false
		}
		taken[n] = true
		return true
	}
}

// taken are the messages that watches of this entity are over.
func (e *entity) taken() map[identity]bool {
	taken := map[identity]bool{}
	for _, list := range [][]*watch{e.watches, e.waiting.watches, e.checking} {
		for _, wt := range list {
			taken[wt.want.identity] = true
			if wt.missed != nil {
				taken[identity{wt.missed.SequenceNumber, wt.missed.EnqueuedTime.UnixMilli()}] = true
			}
		}
	}
	return taken
}

// conclude acts upon the verdict about a watch that is not missed: let go, or check again.
func (e *entity) conclude(ctx context.Context, wt *watch) {
	switch v := wt.judgement.verdict; {
	case v == gone && wt.open(e.w.clock.now()) > 0:
		// Its send may still be under way: the companion can be the faster of the two.
		wt.checks++
		e.later(ctx, wt, min(wt.open(e.w.clock.now()), checkAgainMin<<min(wt.checks, 10)))
	case v == gone && e.settings.forwardTo != "":
		e.follow(ctx, wt)
	case v == gone:
		e.countGone(wt)
		wt.companion.done(ctx, nil)
	case v == notDue:
		e.postpone(ctx, wt)
	case wt.willBeDropped:
		e.later(ctx, wt, e.droppedWait(wt))
	case !wt.disappearedAt.IsZero():
		e.later(ctx, wt, disappearedRetry)
	case e.w.crowded():
		e.rewrite(ctx, wt, e.w.clock.now().Add(crowdedWait))
	default:
		wt.checks++
		wait := min(checkAgainMin*time.Duration(wt.checks), checkAgainMax)
		if e.settings.partitioned {
			wait = max(wait, 4*e.searchTook) // it may have read the whole queue
		}
		e.later(ctx, wt, e.untilComplete(wt, wait))
	}
}

// postpone checks again at the deadline, or when there is something to tell before: from hand if that is near, else by
// a companion that is due then.
func (e *entity) postpone(ctx context.Context, wt *watch) {
	next := e.nextReminder(wt)
	if next.IsZero() {
		wt.companion.done(ctx, nil) // all is notified
		return
	}
	wait := next.Add(stampPrecision).Sub(e.w.clock.now())
	if wait <= nearDeadline && !e.w.behind(next) {
		e.later(ctx, wt, max(wait, time.Millisecond))
		return
	}
	e.rewrite(ctx, wt, next)
}
