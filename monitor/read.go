// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"container/heap"
	"context"
	"errors"
	"slices"
	"time"

	"overdue/monitor/intake"
	"overdue/monitor/metrics"
)

// letterWait is how long a dead letter may take until it can be read. Service Bus clears away
// expired messages asynchronously ("Message browsing"), and does not say how long that takes.
const letterWait = time.Second

// errNoSlots: the scheduler writes no slot companions for such an entity.
var errNoSlots = errors.New("slot companions need an entity with ordered sequence numbers, so neither a topic nor a partitioned entity")

// read finds the messages of rules ③, and makes a watch of each one that is due soon. A message
// that is found nowhere before its deadline was received in time.
func (e *entity) read(ctx context.Context, rules []*rule) {
	err := e.describe(ctx, rules)
	rules = e.refuseSlots(ctx, rules)
	if err == nil && e.settings.topic {
		e.spreadToSubscriptions(ctx, rules)
		return
	}
	if len(e.watches) > maxWatches {
		for _, rl := range rules {
			e.readLater(ctx, rl, checkMax)
		}
		return
	}
	rules = e.endSettled(ctx, rules)
	r := newReading(e, rules)
	if err == nil {
		err = r.run(ctx)
	}
	isMissing := e.noteOutcome(ctx, err, len(rules))
	for _, rl := range rules {
		switch {
		case isMissing && e.isGivenUp(rl.due()):
			e.w.metrics.Verdict(e.name, metrics.Unknown)
			rl.companion.Done(ctx, nil)
		case isMissing:
			e.readLater(ctx, rl, e.missingWait())
		case err != nil:
			e.readLater(ctx, rl, retryAfter(err))
		default:
			e.concludeRule(ctx, rl, r.late[rl])
		}
	}
}

// endSettled ends the rules over messages whose settlement passed an endpoint of this process, and
// returns the others.
func (e *entity) endSettled(ctx context.Context, rules []*rule) []*rule {
	return slices.DeleteFunc(rules, func(rl *rule) bool {
		if rl.slot != nil || rl.hops > 0 || rl.ref.WithoutID() || !e.w.cfg.Scheduler.Settled(e.name, &rl.ref) {
			return false
		}
		e.w.countGone(e.name, &rl.ref, metrics.Met)
		rl.companion.Done(ctx, nil)
		return true
	})
}

// refuseSlots refuses slots where the scheduler writes none, and returns the other rules.
func (e *entity) refuseSlots(ctx context.Context, rules []*rule) []*rule {
	if !e.settings.partitioned && !e.settings.topic {
		return rules
	}
	return slices.DeleteFunc(rules, func(rl *rule) bool {
		if rl.slot != nil {
			rl.companion.Refuse(ctx, intake.Malformed, errNoSlots.Error())
		}
		return rl.slot != nil
	})
}

// concludeRule ends a rule, or has it read again. late says that its messages may have expired
// before they were read.
func (e *entity) concludeRule(ctx context.Context, rl *rule, late bool) {
	far := rl.far
	rl.far = time.Time{}
	open := rl.open(e.w.clock.Latest())
	switch {
	case !far.IsZero():
		rl.companion.Done(ctx, e.again(rl, far.Add(e.w.clock.Grain())))
	case open > 0 && (!rl.matched || rl.ref.WithoutID() || len(rl.noted) > 1):
		rl.reads++ // its send may still be in flight, or is made again
		e.readLater(ctx, rl, min(open, checkMin<<min(rl.reads, 10)))
	case rl.matched:
		rl.companion.Done(ctx, nil)
	case e.settings.forwardTo != "":
		e.follow(ctx, rl.companion, &rl.ref, rl.hops)
	case (late || e.settings.sessions) && !rl.letters:
		rl.letters = true
		e.readLater(ctx, rl, letterWait)
	default:
		if rl.slot == nil && !rl.ref.Sent.IsZero() { // otherwise there may have been no message
			e.w.countGone(e.name, &rl.ref, e.verdictOf(late, rl.ref.Deadline, time.Time{}))
		}
		rl.companion.Done(ctx, nil)
	}
}

// readLater has a rule read again after wait: from hand if its companion can be held that long,
// otherwise by rewriting the companion.
func (e *entity) readLater(ctx context.Context, rl *rule, wait time.Duration) {
	if rl.companion.MayWait(wait) {
		rl.next = time.Now().Add(wait)
		heap.Push(&e.agenda, rl)
		return
	}
	rl.companion.Done(ctx, e.again(rl, e.w.clock.Now().Add(wait)))
}
