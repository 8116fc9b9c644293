// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"overdue/scheduler"

	"go.uber.org/zap"
)

// Reasons with which companions, digests and notes go to the dead-letter queue of the monitor queue.
const (
	Malformed     = "CompanionMalformed"
	Undeliverable = "AlertUndeliverable"
)

// maxHold bounds how long a companion stays in hand for a check. What waits for longer is
// rewritten.
const maxHold = 40 * time.Second

// A Companion is a companion in hand, under its lock. It is settled once, when its last watch has
// ended: a watch is the check of one message.
type Companion struct {
	Content scheduler.Companion
	Since   time.Time // by our clock: when it came

	in    *Intake
	lease *Lease

	mu        sync.Mutex
	watches   int                   // made of it so far
	open      int                   // watches that have not ended
	rewritten []scheduler.Companion // to be written before this one is completed
	writing   sync.WaitGroup        // of those that are due while other watches are still open
	fatal     *refusal              // set: nobody can ever handle it
}

type refusal struct{ reason, description string }

// Open reads the companion of a lease. It returns nil for one that cannot be parsed: that goes to
// the dead-letter queue of the monitor queue, with the reason. And it returns nil for a copy of one
// that is in hand, which it completes.
func (in *Intake) Open(ctx context.Context, l *Lease) *Companion {
	content, err := scheduler.ParseCompanion(l.Body)
	h := &Companion{in: in, lease: l, Content: content, Since: time.Now()}
	if err != nil {
		in.log.Warn("companion refused: it is kept as a dead letter", zap.String("monitor_queue", l.Queue), zap.String("message_id", l.ID), zap.Error(err))
		// A flood of them must not delay the valid ones.
		in.settling.Go(func() { h.deadLetter(ctx, Malformed, err.Error()) })
		return nil
	}
	if isOfOneSend(&content) && in.hand.hasCopyOf(l) {
		in.settling.Go(func() {
			if err := l.Complete(ctx); err != nil {
				in.log.Warn("copy of a companion not completed: its messages are checked again", zap.String("work_queue", content.Entity), zap.Error(err))
			}
		})
		return nil
	}
	in.cfg.Outstanding(content.Entity, len(content.References))
	return h
}

// isOfOneSend reports whether an equal companion must be of the same send. Equal slots may cover
// messages of several processes, and a sender that repeats its send may leave several messages.
func isOfOneSend(c *scheduler.Companion) bool {
	return !c.IsSlot() && !slices.ContainsFunc(c.References, func(r scheduler.Reference) bool { return !r.Once })
}

// Until returns by when to rewrite h, by our clock, unless its events are being notified.
func (h *Companion) Until() time.Time { return h.Since.Add(maxHold) }

// Queue returns the monitor queue that h came from.
func (h *Companion) Queue() string { return h.lease.Queue }

// Add counts n more watches.
func (h *Companion) Add(n int) {
	h.in.watching.Add(int64(n))
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open += n
	h.watches += n
}

// Done ends one watch. again, if not nil, is a companion that takes over.
func (h *Companion) Done(ctx context.Context, again *scheduler.Companion) {
	h.mu.Lock()
	if again != nil {
		h.rewritten = append(h.rewritten, *again)
	}
	h.open--
	last := h.open == 0
	h.mu.Unlock()
	if h.in.watching.Add(-1) == maxWatched/2 {
		h.in.ease()
	}
	if last {
		// In a goroutine, since these are round trips, and the caller has other watches to handle.
		h.in.settling.Go(func() { h.settle(ctx) })
	}
}

// Refuse ends one watch of a companion that must not come back.
func (h *Companion) Refuse(ctx context.Context, reason, description string) {
	h.mu.Lock()
	h.fatal = &refusal{reason, description}
	h.mu.Unlock()
	h.Done(ctx, nil)
}

// settle writes the companions that take over, then completes this one. If either fails, its
// lock lapses and it comes back: that costs one more check, and loses nothing.
func (h *Companion) settle(ctx context.Context) {
	h.in.cfg.Outstanding(h.Content.Entity, -len(h.Content.References))
	h.writing.Wait()
	if err := h.write(ctx, h.rewritten); err != nil {
		h.in.log.Warn("companion not rewritten: its messages are checked again", zap.String("work_queue", h.Content.Entity), zap.Error(err))
		h.lease.LetGo()
		return
	}
	if h.fatal != nil {
		h.deadLetter(ctx, h.fatal.reason, h.fatal.description)
		return
	}
	if err := h.lease.Complete(ctx); err != nil {
		h.in.log.Warn("companion not completed: its messages are checked again", zap.String("work_queue", h.Content.Entity), zap.Error(err))
	}
}

// WriteEarly writes the companions that take over, if one of them may be due while other watches
// are still open. A subscription whose message a consumer holds must not delay the others.
func (h *Companion) WriteEarly(ctx context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	soon := h.in.cfg.Clock.Now().Add(maxHold)
	if h.open == 0 || !slices.ContainsFunc(h.rewritten, func(c scheduler.Companion) bool { return c.Due.Before(soon) }) {
		return
	}
	early := h.rewritten
	h.rewritten = nil
	h.writing.Add(1)
	h.in.settling.Go(func() {
		defer h.writing.Done()
		if h.write(ctx, early) == nil {
			return
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.rewritten = append(h.rewritten, early...) // settle tries again
	})
}

// write writes companions that take over, in parallel, so that they share a transfer.
func (h *Companion) write(ctx context.Context, again []scheduler.Companion) error {
	companions := merged(again)
	errs := make([]error, len(companions))
	var writing sync.WaitGroup
	for i, c := range companions {
		writing.Go(func() { errs[i] = h.in.cfg.Scheduler.Schedule(ctx, c) })
	}
	writing.Wait()
	return errors.Join(errs...)
}

const (
	// mergeSpan is how far apart rewritten companions may be due to become one, which is due with
	// the last of them.
	mergeSpan = 20 * time.Millisecond
	// mergeMost bounds the references of such a companion, well below the largest message of
	// any tier.
	mergeMost = 100
)

// merged joins rewritten companions that are due at about the same time. Those whose messages
// have expired are less urgent, and joined however far apart they are due. Otherwise each event
// would end up with a companion of its own.
func merged(again []scheduler.Companion) []scheduler.Companion {
	again = slices.Clone(again)
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
func (h *Companion) deadLetter(ctx context.Context, reason, description string) {
	if err := h.lease.DeadLetter(ctx, reason, description); err != nil {
		h.in.log.Warn("companion not dead-lettered: it comes back when its lock lapses", zap.String("work_queue", h.Content.Entity), zap.String("reason", reason), zap.Error(err))
	}
}

// HandBack releases the companion for the next worker, and does not wait. It does so only if these n
// watches are all that were made of it so far, and reports whether it does.
func (h *Companion) HandBack(ctx context.Context, n int) bool {
	h.mu.Lock()
	whole := h.watches == n
	h.mu.Unlock()
	if !whole {
		return false
	}
	h.in.watching.Add(-int64(n))
	h.in.cfg.Outstanding(h.Content.Entity, -len(h.Content.References))
	h.in.settling.Go(func() {
		if err := h.lease.HandBack(ctx); err != nil {
			h.in.log.Warn("companion not handed back: it comes back when its lock lapses", zap.String("work_queue", h.Content.Entity), zap.Error(err))
		}
	})
	return true
}
