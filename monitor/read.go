// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"container/heap"
	"context"
	"slices"
	"time"

	"overdue/monitor/intake"
)

// letterWait is how long a dead letter may take until it can be read. Service Bus clears away
// expired messages asynchronously ("Message browsing"), and does not say how long that takes.
const letterWait = time.Second

// noSlots says why a slot is refused: the scheduler writes none for such an entity.
const noSlots = "slot companions need an entity with ordered sequence numbers, so neither a topic nor a partitioned entity"

// read finds the messages of rules ③, and makes a watch of each one that is due soon. A message
// that is found nowhere before its deadline was received in time.
func (e *entity) read(ctx context.Context, rules []*rule) {
	err := e.describe(ctx)
	rules = slices.DeleteFunc(rules, func(rl *rule) bool { return e.endUnread(ctx, rl) })
	if err == nil && e.settings.topic {
		e.w.spread(ctx, e.name, e.settings.subscriptions, rules)
		return
	}
	r := newReading(e, rules)
	if len(e.watches) > maxWatches {
		for _, rl := range rules {
			r.readLater(ctx, rl, checkMax)
		}
		return
	}
	if err == nil {
		err = r.run(ctx)
	}
	isMissing := e.noteOutcome(ctx, err, len(rules))
	for _, rl := range rules {
		switch {
		case isMissing && e.isGivenUp(rl.due()):
			e.w.noteUnknown(rl.unknown(e.name, whyMissing))
			rl.companion.Done(ctx, nil)
		case isMissing:
			r.readLater(ctx, rl, e.w.missingWait(e.missingSince))
		case err != nil:
			r.readLater(ctx, rl, retryAfter(err))
		default:
			r.conclude(ctx, rl)
		}
	}
}

// endUnread ends a rule over a message whose settlement passed an endpoint of this process, and
// refuses a slot where the scheduler writes none. It reports whether it did.
func (e *entity) endUnread(ctx context.Context, rl *rule) bool {
	switch {
	case rl.slot != nil && (e.settings.partitioned || e.settings.topic):
		rl.companion.Refuse(ctx, intake.Malformed, noSlots)
	case rl.slot == nil && rl.hops == 0 && !rl.ref.WithoutID() && e.w.cfg.Scheduler.Settled(e.name, &rl.ref):
		e.w.countGone(&rl.ref, rl.unknown(e.name, isMet))
		rl.companion.Done(ctx, nil)
	default:
		return false
	}
	return true
}

// conclude ends a rule, or has it read again.
func (r *reading) conclude(ctx context.Context, rl *rule) {
	e, far, late := r.e, rl.far, r.late[rl]
	rl.far = time.Time{}
	open := rl.open(e.w.clock.Latest())
	switch {
	case !far.IsZero():
		rl.companion.Done(ctx, e.again(rl, far.Add(e.w.clock.Grain())))
	case open > 0 && (!rl.matched || rl.ref.WithoutID() || len(rl.noted) > 1):
		rl.reads++ // its send may still be in flight, or is made again
		r.readLater(ctx, rl, min(open, checkMin<<min(rl.reads, 10)))
	case rl.matched:
		rl.companion.Done(ctx, nil)
	case e.settings.forwardTo != "":
		e.follow(ctx, rl.companion, &rl.ref, rl.hops)
	case (late || e.settings.sessions) && !rl.letters:
		rl.letters = true
		r.readLater(ctx, rl, letterWait)
	default:
		if rl.slot == nil && !rl.ref.Sent.IsZero() { // otherwise there may have been no message
			e.w.countGone(&rl.ref, rl.unknown(e.name, e.doubtOf(late, rl.ref.Deadline, time.Time{})))
		}
		rl.companion.Done(ctx, nil)
	}
}

// readLater has a rule read again after wait: from hand if its companion can be held that long,
// otherwise by rewriting the companion.
func (r *reading) readLater(ctx context.Context, rl *rule, wait time.Duration) {
	if rl.companion.MayWait(wait) {
		rl.next = time.Now().Add(wait)
		heap.Push(&r.e.agenda, rl)
		return
	}
	rl.companion.Done(ctx, r.e.again(rl, r.e.w.clock.Now().Add(wait)))
}
