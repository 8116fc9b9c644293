// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"overdue/internal/servicebus/link"
	"overdue/monitor/judge"
	"overdue/monitor/search"
	"overdue/scheduler"

	"go.uber.org/zap"
)

// Reasons with which companions go to the dead-letter queue of the monitor queue.
const (
	reasonMalformed     = "CompanionMalformed"
	reasonUndeliverable = "AlertUndeliverable"
)

// maxHold bounds how long a companion stays in hand for a check. What waits for longer is
// rewritten.
const maxHold = 40 * time.Second

// maxAttempts bounds how often a companion is rewritten because a notification failed. With
// attemptDelay that takes about a day.
const maxAttempts = 300

// companion is a companion in hand, under its lock. It is settled once, when its last watch has
// ended.
type companion struct {
	w       *Worker
	lease   lease
	content scheduler.Companion
	until   time.Time // by our clock: rewrite it by then, unless its events are being notified

	mu        sync.Mutex
	watches   int                   // made of it so far
	open      int                   // watches that have not ended
	rewritten []scheduler.Companion // to be written before this one is completed
	fatal     *refusal              // set: nobody can ever handle it
}

type refusal struct{ reason, description string }

// watch is the check of one message: a reference, and what is known of its message so far. The
// goroutine of its entity owns it until it ends.
type watch struct {
	ref       scheduler.Reference
	slot      *scheduler.Companion // the watch is over a slot, not over a message yet
	companion *companion
	since     time.Time // by our clock: when the companion came
	next      time.Time // by our clock: when to check

	want      search.Want // the last search and its result
	state     state
	judgement judge.Judgement   // of the last check
	missed    *scheduler.Missed // how it expired, once it has
	seenAt    time.Time         // by the clock of the broker: when it was last on the work queue
	hops      int               // how often it was forwarded, as far as it was followed

	// The nudge that comes before any check, see nudge_first.go.
	nudgeWanted      bool // it was requested
	awaitsNudge      bool // it waits for that nudge, or has waited
	deadLetterSought bool // its dead letter was searched for after that

	// Message-ids that repeat, see duplicate_ids.go.
	duplicate         bool           // a duplicate, which probably has a reference of its own
	duplicates        duplicateWatch // the watch is over the duplicates of a message
	duplicatesWatched bool           // there was such a watch while its message was there

	// Dead letters that are taken away, see evidence.go.
	mayExpireNow   bool          // overdue immediately before our nudge, and probably not locked
	expiredByNudge *link.Message // such a message, gone after the nudge
	atNudge        *link.Message // it was overdue right before another message's nudge, too
	unaccounted    bool          // gone, and nobody knows how

	// Attempts to expire it, see receive_scope.go.
	unreached          bool       // the last scan made progress and ended before it
	nudged             nudgeShows // of a message that is still there
	refused            bool       // nobody could receive it at the last attempt
	willBeDropped      bool       // it has expired, and the entity drops expired messages
	checks             int        // checks that found it in flight
	failures           int        // checks that failed in a row
	triedAt            time.Time  // by our clock: the last attempt; zero: none
	triedDeliveryCount uint32     // its delivery count at that attempt
	retryDelay         time.Duration
	retryAt            time.Time // by our clock: the next attempt
}

// sendTime is how long after its companion a message may be enqueued, if the companion does not
// state a window. A send that takes longer gets a second companion.
const sendTime = 3 * time.Second

// open returns how long the message of wt may still arrive on the work queue, at the instant
// now of the clock of the broker. Only after that its absence has a meaning.
func (wt *watch) open(now time.Time) time.Duration {
	if wt.want.Number != 0 {
		return 0 // it has been seen
	}
	if wt.ref.Until.IsZero() {
		return time.Until(wt.since.Add(sendTime))
	}
	return wt.ref.Until.Add(search.WindowMargin).Sub(now)
}

// newWatches makes a watch of each reference.
func (h *companion) newWatches() []*watch {
	now := time.Now()
	if h.content.IsSlot() {
		h.add(1)
		return []*watch{{slot: &h.content, ref: scheduler.Reference{Sent: h.content.SlotStart()}, companion: h, since: now, next: now}}
	}
	watches := make([]*watch, len(h.content.References))
	for i, r := range h.content.References {
		watches[i] = &watch{ref: r, companion: h, since: now, next: now}
		if r.Missed != nil {
			watches[i].expired(r.Missed)
		}
	}
	h.add(len(watches))
	return watches
}

// add counts n more watches.
func (h *companion) add(n int) {
	h.w.watching.Add(int64(n))
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open += n
	h.watches += n
}

// madeFor reports whether n watches are all that were made of it so far.
func (h *companion) madeFor(n int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.watches == n
}

// done ends one watch. again, if not nil, is a companion that takes over.
func (h *companion) done(ctx context.Context, again *scheduler.Companion) {
	h.mu.Lock()
	if again != nil {
		h.rewritten = append(h.rewritten, *again)
	}
	h.open--
	last := h.open == 0
	h.mu.Unlock()
	if h.w.watching.Add(-1) == maxWatched/2 {
		select {
		case h.w.eased <- struct{}{}:
		default:
		}
	}
	if last {
		// In a goroutine, since these are round trips, and the caller has other watches to handle.
		h.w.running.Go(func() { h.settle(ctx) })
	}
}

// refuse ends one watch of a companion that must not come back.
func (h *companion) refuse(ctx context.Context, reason, description string) {
	h.mu.Lock()
	h.fatal = &refusal{reason, description}
	h.mu.Unlock()
	h.done(ctx, nil)
}

// settle writes the companions that take over, then completes this one. If either fails, its
// lock lapses and it comes back: that costs one more check, and loses nothing.
func (h *companion) settle(ctx context.Context) {
	w := h.w
	w.metrics.outstanding(h.content.Entity, -len(h.content.References))
	if err := h.rewrite(ctx); err != nil {
		w.log.Warn("companion not rewritten: its messages are checked again", zap.String("work_queue", h.content.Entity), zap.Error(err))
		h.release()
		return
	}
	if h.fatal != nil {
		h.deadLetter(ctx, h.fatal.reason, h.fatal.description)
		return
	}
	defer h.release()
	if err := h.lease.complete(ctx); err != nil {
		w.log.Warn("companion not completed: its messages are checked again", zap.String("work_queue", h.content.Entity), zap.Error(err))
	}
}

// rewrite writes the companions that take over, in parallel, so that they share a transfer.
func (h *companion) rewrite(ctx context.Context) error {
	companions := h.merged()
	errs := make([]error, len(companions))
	var writing sync.WaitGroup
	for i, c := range companions {
		writing.Go(func() { errs[i] = h.w.cfg.Scheduler.Schedule(ctx, c) })
	}
	writing.Wait()
	return errors.Join(errs...)
}

const (
	// mergeSpan is how far apart rewritten companions may be due to become one, which is due with the
	// last of them.
	mergeSpan = 20 * time.Millisecond
	// mergeMost bounds the references of such a companion, well below the largest message of
	// any tier.
	mergeMost = 100
)

// merged joins rewritten companions that are due at about the same time. Those whose messages
// have expired are less urgent, and joined however far apart they are due. Otherwise each event
// would end up with a companion of its own.
func (h *companion) merged() []scheduler.Companion {
	again := h.rewritten
	slices.SortFunc(again, func(a, b scheduler.Companion) int {
		return cmp.Or(cmp.Compare(a.Entity, b.Entity), cmp.Compare(a.Attempt, b.Attempt), a.Due.Compare(b.Due))
	})
	var out []scheduler.Companion
	var first time.Time // due time of the first that went into the last of out
	for _, c := range again {
		if n := len(out); n > 0 {
			last := &out[n-1]
			notificationsOnly := onlyNotifies(last) && onlyNotifies(&c)
			if !c.IsSlot() && !last.IsSlot() && last.Entity == c.Entity && last.Attempt == c.Attempt && last.Version() == c.Version() && (notificationsOnly || c.Due.Sub(first) <= mergeSpan) && len(last.References) < mergeMost {
				last.Due = c.Due
				last.References = append(last.References, c.References...)
				continue
			}
		}
		out, first = append(out, c), c.Due
	}
	return out
}

// onlyNotifies reports whether c stands for messages that have expired.
func onlyNotifies(c *scheduler.Companion) bool { return !c.IsSlot() && c.References[0].Missed != nil }

// deadLetter moves the companion to where operators find it.
func (h *companion) deadLetter(ctx context.Context, reason, description string) {
	defer h.release()
	if err := h.lease.deadLetter(ctx, reason, description); err != nil {
		h.w.log.Warn("companion not dead-lettered: it comes back when its lock lapses", zap.String("work_queue", h.content.Entity), zap.String("reason", reason), zap.Error(err))
	}
}

// handBack releases the companion for the next worker, and does not wait.
func (h *companion) handBack(ctx context.Context) {
	h.mu.Lock()
	h.w.watching.Add(-int64(h.open))
	h.mu.Unlock()
	h.w.metrics.outstanding(h.content.Entity, -len(h.content.References))
	h.w.running.Go(func() {
		defer h.release()
		if err := h.lease.handBack(ctx); err != nil {
			h.w.log.Warn("companion not handed back: it comes back when its lock lapses", zap.String("work_queue", h.content.Entity), zap.Error(err))
		}
	})
}

// release makes room for another companion.
func (h *companion) release() { h.w.letGo(h.lease) }

// attemptDelay returns the delay before attempt n of a notification, n ≥ 1.
func attemptDelay(n int) time.Duration {
	if n > 9 {
		return 5 * time.Minute
	}
	return time.Second << (n - 1)
}
