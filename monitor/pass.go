// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// windowMargin widens the window in which a message is looked for, since the nodes of a
// broker need not agree to the millisecond.
const windowMargin = time.Second

// stampGrain is what an AMQP timestamp is cut to: the instant itself may be later by that.
const stampGrain = time.Millisecond

// pass looks, judges, expires and looks again, for all the watches given, so that
// each has a verdict. When it returns an error none has, except for what was expired by hand:
// that only has to be told.
func (e *entity) pass(ctx context.Context, due []*watch) error {
	looking := make([]*watch, 0, len(due))
	for _, wt := range due {
		if wt.missed == nil {
			looking = append(looking, wt)
		}
	}
	// ④ look and judge
	if err := e.look(ctx, &e.work, looking); err != nil {
		return err
	}
	now := e.w.clock.now().Add(-stampGrain)
	var overdue []*watch
	for _, wt := range looking {
		wt.judgement = judgement{verdict: Gone}
		if m := wt.want.found; m != nil {
			wt.judgement = judge(&wt.ref, m, e.settings, now)
		}
		if wt.judgement.verdict == Overdue {
			overdue = append(overdue, wt)
		}
	}
	// ⑤ expire; what stays is in flight, what goes is gone
	if err := e.expire(ctx, overdue); err != nil {
		return err
	}
	var gone []*watch
	for _, wt := range looking {
		if wt.judgement.verdict == Gone && wt.missed == nil {
			gone = append(gone, wt)
		}
	}
	return e.reckon(ctx, gone)
}

// look finds the messages of the watches in v. Where a message-id repeats, a watch takes
// the message whose deadline is the one that it was sent with, and leaves one that another watch
// of this entity follows already to that one.
func (e *entity) look(ctx context.Context, v *view, watches []*watch) error {
	taken := map[int64]*watch{}
	for _, wt := range e.watches {
		if n := wt.want.number; n != 0 {
			taken[n] = wt
		}
	}
	wants := make([]*want, len(watches))
	for i, wt := range watches {
		w := &wt.want
		w.found, w.spare = nil, nil
		if w.number == 0 {
			w.ref, w.messageID = &wt.ref, wt.ref.MessageID
			if !wt.ref.From.IsZero() {
				w.from, w.until = wt.ref.From.Add(-windowMargin), wt.ref.Until.Add(windowMargin)
			}
		} else {
			taken[w.number] = wt
		}
		wants[i] = w
	}
	err := v.find(ctx, wants, func(w *want, m *azservicebus.ReceivedMessage) bool {
		return taken[sequenceNumber(m)] == nil && agrees(w.ref, m, e.settings)
	})
	for _, w := range wants {
		if w.found == nil {
			w.found = w.spare
		}
		if w.found != nil {
			w.number = sequenceNumber(w.found)
		}
	}
	return err
}

// conclude acts upon the verdict about one watch: ⑥ tell, or let go, or look again.
func (e *entity) conclude(ctx context.Context, wt *watch) {
	switch v := wt.judgement.verdict; {
	case wt.missed != nil:
		e.w.tell(ctx, e.name, wt)
	case v == Gone && wt.open(e.w.clock.now()) > 0:
		// Its send may still be under way: the companion can be the faster of the two.
		wt.looks++
		e.later(ctx, wt, min(wt.open(e.w.clock.now()), lookAgainMin<<min(wt.looks, 10)))
	case v == Gone:
		e.w.metrics.verdict(e.name, "met")
		wt.held.done(ctx, nil)
	case v == NotDue:
		e.postpone(ctx, wt)
	default:
		wt.looks++
		wait := lookAgainMin * time.Duration(wt.looks)
		e.later(ctx, wt, min(wait, lookAgainMax))
	}
}

// postpone looks again at the deadline: from hand if it is near, else by a companion
// that is due then.
func (e *entity) postpone(ctx context.Context, wt *watch) {
	wait := wt.judgement.deadline.Add(stampGrain).Sub(e.w.clock.now())
	if wait <= nearDeadline {
		e.later(ctx, wt, max(wait, time.Millisecond))
		return
	}
	e.anew(ctx, wt, wt.judgement.deadline)
}
