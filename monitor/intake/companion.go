// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"overdue/scheduler"

	"go.uber.org/zap"
)

// Reasons with which companions, digests and notes go to the dead-letter queue of the monitor
// queue.
const (
	Malformed     = "CompanionMalformed"
	Undeliverable = "AlertUndeliverable"
)

const (
	// maxHold bounds how long a companion stays in hand for checks: who holds it for longer looks like
	// a monitor that hangs, see package unreceived.
	maxHold = 40 * time.Second
	// CrowdedWait is how long a companion makes room that waits for a check while the worker is
	// crowded.
	CrowdedWait = 5 * time.Second
)

// A Companion is a companion in hand, under its lock, until all its messages are seen to. Add
// counts watches: a watch is the check of one message. Done ends one, and may leave its message to
// a part, a companion that takes over. HandBack ends one at a stop. When the last watch has ended,
// the companion is settled once: it is handed back if all watches were, and completed otherwise,
// after its parts are written.
type Companion struct {
	Content scheduler.Companion
	Since   time.Time // by our clock: when it came

	in    *Intake
	lease *Lease

	mu      sync.Mutex
	open    int                   // watches that have not ended
	begun   bool                  // a watch has ended otherwise than by HandBack
	parts   []scheduler.Companion // to be written
	writing sync.WaitGroup        // writeEarly
	refused error                 // set: nobody can ever handle it
	reason  string                // of the dead letter then
}

// Open reads the companion of a lease. It returns nil for one that cannot be parsed: that goes to
// the dead-letter queue of the monitor queue, with the reason.
func (in *Intake) Open(ctx context.Context, l *Lease) *Companion {
	content, err := scheduler.ParseCompanion(l.Body)
	h := &Companion{
		Content: content,
		Since:   time.Now(),
		in:      in,
		lease:   l,
	}
	if err != nil {
		in.log.Warn("companion refused: it is kept as a dead letter", zap.String("monitor_queue", l.Queue), zap.String("message_id", l.ID), zap.Error(err))
		h.begun, h.refused, h.reason = true, err, Malformed
		// A flood of them must not delay the valid ones.
		in.settling.Go(func() { h.settle(ctx) })
		return nil
	}
	in.cfg.Outstanding(content.Entity, len(content.References))
	return h
}

// Queue returns the monitor queue that h came from.
func (h *Companion) Queue() string { return h.lease.Queue }

// MayWait reports whether h may stay in hand for that long until it is checked again. Otherwise its
// watch must leave the message to a part: what waits must not keep others from being checked. A
// short wait stays in hand: to rewrite a companion costs three operations.
func (h *Companion) MayWait(wait time.Duration) bool {
	isHeldLong := time.Since(h.Since)+wait >= maxHold
	return !isHeldLong && (wait < CrowdedWait || !h.in.IsCrowded())
}

// Add counts n more watches.
func (h *Companion) Add(n int) {
	h.in.watching.Add(int64(n))
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open += n
}

// Done ends one watch. part, if not nil, takes over: it is written a moment later, with those that
// come meanwhile, since it may be due while other watches are still open.
func (h *Companion) Done(ctx context.Context, part *scheduler.Companion) {
	h.end(ctx, part, func() {
		h.begun = true
		if part != nil && len(h.parts) == 0 && h.open > 1 {
			h.writing.Go(func() { h.writeEarly(ctx) })
		}
	})
}

// Refuse ends one watch of a companion that must not come back.
func (h *Companion) Refuse(ctx context.Context, reason, description string) {
	h.end(ctx, nil, func() { h.begun, h.refused, h.reason = true, errors.New(description), reason })
}

// HandBack ends one watch at a stop, and leaves its message to the next worker. part takes over if
// another watch has ended otherwise: its message must not be handled again.
func (h *Companion) HandBack(ctx context.Context, part *scheduler.Companion) {
	h.end(ctx, part, func() {})
}

// end ends one watch, for which it calls note under the lock.
func (h *Companion) end(ctx context.Context, part *scheduler.Companion, note func()) {
	h.mu.Lock()
	note()
	if part != nil {
		h.parts = append(h.parts, *part)
	}
	h.open--
	last := h.open == 0
	h.mu.Unlock()
	h.in.watching.Add(-1)
	h.in.ease()
	if last {
		h.in.cfg.Outstanding(h.Content.Entity, -len(h.Content.References))
		// In a goroutine, since these are round trips, and the caller has other watches to handle.
		h.in.settling.Go(func() { h.settle(ctx) })
	}
}

// settle ends h. If that fails, its lock lapses and it comes back: that costs one more check, and
// loses nothing.
func (h *Companion) settle(ctx context.Context) {
	h.writing.Wait()
	how, err := "handed back", error(nil)
	switch {
	case !h.begun:
		err = h.lease.HandBack(ctx)
	case !h.write(ctx, h.parts):
		h.lease.LetGo()
	case h.refused != nil:
		how, err = "dead-lettered", h.lease.DeadLetter(ctx, h.reason, h.refused.Error())
	default:
		how, err = "completed", h.lease.Complete(ctx)
	}
	if err != nil {
		h.in.log.Warn("companion not "+how+": its messages are checked again", zap.String("work_queue", h.Content.Entity), zap.Error(err))
	}
}

// writeEarly writes parts while other watches are open. If that fails, it tries again.
func (h *Companion) writeEarly(ctx context.Context) {
	for wait := joinSpan; ctx.Err() == nil; wait = ReconnectEvery {
		time.Sleep(wait)
		h.mu.Lock()
		parts := h.parts
		h.parts = nil
		h.mu.Unlock()
		if h.write(ctx, parts) {
			return
		}
		h.mu.Lock()
		h.parts = append(parts, h.parts...)
		isLast := h.open == 0 // then settle writes them
		h.mu.Unlock()
		if isLast {
			return
		}
	}
}

// write writes parts in parallel, so that they share a transfer.
func (h *Companion) write(ctx context.Context, parts []scheduler.Companion) (ok bool) {
	var failed atomic.Bool
	var writing sync.WaitGroup
	for _, c := range joined(parts) {
		writing.Go(func() {
			if err := h.in.cfg.Scheduler.Schedule(ctx, c); err != nil {
				failed.Store(true)
				h.in.log.Warn("companion not rewritten: its messages are checked again", zap.String("work_queue", c.Entity), zap.Error(err))
			}
		})
	}
	writing.Wait()
	return !failed.Load()
}

const (
	// joinSpan is how far apart parts may come, and be due, to become one companion, which is due with
	// the last of them.
	joinSpan = 20 * time.Millisecond
	// maxJoined bounds the references of such a companion, well below the largest message of any
	// tier.
	maxJoined = 100
)

// joined joins parts that are due at about the same time, and notifications however far apart they
// are due. Otherwise each event of a sink that is down would end up with a companion of its own.
func joined(parts []scheduler.Companion) (companions []scheduler.Companion) {
	type joinKey struct {
		entity           string
		attempt, version int
		due              int64 // in spans; 0: only the notification is left, which is less urgent
	}
	last := map[joinKey]int{} // index of the companion to join
	for _, p := range parts {
		k := joinKey{
			entity:  p.Entity,
			attempt: p.Attempt,
			version: p.Version(),
		}
		if p.IsSlot() || p.References[0].Missed == nil {
			k.due = p.Due.UnixNano() / int64(joinSpan)
		}
		i, ok := last[k]
		if p.IsSlot() || !ok || len(companions[i].References) >= maxJoined {
			p.References = slices.Clip(p.References) // those of the caller stay as they are
			companions = append(companions, p)
			if !p.IsSlot() {
				last[k] = len(companions) - 1
			}
			continue
		}
		c := &companions[i]
		if p.Due.After(c.Due) {
			c.Due = p.Due
		}
		c.References = append(c.References, p.References...)
	}
	return companions
}
