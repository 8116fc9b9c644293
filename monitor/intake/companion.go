// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"context"
	"errors"
	"slices"
	"sync"
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
	// crowded. One that waits for less stays in hand: to rewrite it costs three operations, and what
	// is known of its messages.
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
	rest    []scheduler.Companion // parts of watches that HandBack has ended
	writing sync.WaitGroup        // writeEarly
	refused *refusal              // set: nobody can ever handle it
}

type refusal struct{ reason, description string }

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
		h.begun, h.refused = true, &refusal{Malformed, err.Error()}
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
// watch must leave the message to a part: what waits must not keep others from being checked.
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
	h.mu.Lock()
	h.begun = true
	if part != nil {
		h.parts = append(h.parts, *part)
		if len(h.parts) == 1 && h.open > 1 {
			h.writing.Go(func() { h.writeEarly(ctx) })
		}
	}
	h.endLocked(ctx)
}

// Refuse ends one watch of a companion that must not come back.
func (h *Companion) Refuse(ctx context.Context, reason, description string) {
	h.mu.Lock()
	h.begun = true
	h.refused = &refusal{reason, description}
	h.endLocked(ctx)
}

// HandBack ends one watch at a stop, and leaves its message to the next worker. part takes over if
// another watch has ended otherwise: its message must not be handled again.
func (h *Companion) HandBack(ctx context.Context, part *scheduler.Companion) {
	h.mu.Lock()
	h.rest = append(h.rest, *part)
	h.endLocked(ctx)
}

// endLocked ends one watch, and unlocks h.
func (h *Companion) endLocked(ctx context.Context) {
	h.open--
	last := h.open == 0
	h.mu.Unlock()
	if h.in.watching.Add(-1) == maxWatched/2 {
		h.in.ease()
	}
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
	if !h.begun {
		h.logUnsettled("handed back", h.lease.HandBack(ctx))
		return
	}
	if err := h.write(ctx, append(h.parts, h.rest...)); err != nil {
		h.logUnsettled("rewritten", err)
		h.lease.LetGo()
		return
	}
	if h.refused != nil {
		h.logUnsettled("dead-lettered", h.lease.DeadLetter(ctx, h.refused.reason, h.refused.description))
		return
	}
	h.logUnsettled("completed", h.lease.Complete(ctx))
}

func (h *Companion) logUnsettled(want string, err error) {
	if err != nil {
		h.in.log.Warn("companion not "+want+": its messages are checked again", zap.String("work_queue", h.Content.Entity), zap.Error(err))
	}
}

// writeEarly writes parts while other watches are open. If that fails, it tries again.
func (h *Companion) writeEarly(ctx context.Context) {
	for wait := joinSpan; ctx.Err() == nil; wait = ReconnectEvery {
		time.Sleep(wait)
		h.mu.Lock()
		if h.open == 0 {
			h.mu.Unlock()
			return // settle writes them
		}
		parts := h.parts
		h.parts = nil
		h.mu.Unlock()
		if h.write(ctx, parts) == nil {
			return
		}
		h.mu.Lock()
		h.parts = append(parts, h.parts...)
		h.mu.Unlock()
	}
}

// write writes parts in parallel, so that they share a transfer.
func (h *Companion) write(ctx context.Context, parts []scheduler.Companion) error {
	companions := joined(parts)
	errs := make([]error, len(companions))
	var writing sync.WaitGroup
	for i, c := range companions {
		writing.Go(func() { errs[i] = h.in.cfg.Scheduler.Schedule(ctx, c) })
	}
	writing.Wait()
	return errors.Join(errs...)
}

const (
	// joinSpan is how far apart parts may come, and be due, to become one companion, which is due with
	// the last of them.
	joinSpan = 20 * time.Millisecond
	// maxJoined bounds the references of such a companion, well below the largest message of any
	// tier.
	maxJoined = 100
)

// A joinKey is what parts share that become one.
type joinKey struct {
	entity  string
	attempt int
	version int
	due     int64 // in spans; 0: only the notification is left, which is less urgent
}

// joined joins parts that are due at about the same time, and notifications however far apart they
// are due. Otherwise each event of a sink that is down would end up with a companion of its own.
func joined(parts []scheduler.Companion) (companions []scheduler.Companion) {
	last := map[joinKey]int{} // index of the companion to join
	for _, p := range parts {
		if p.IsSlot() {
			companions = append(companions, p)
			continue
		}
		k := joinKey{
			entity:  p.Entity,
			attempt: p.Attempt,
			version: p.Version(),
		}
		if p.References[0].Missed == nil {
			k.due = p.Due.UnixNano() / int64(joinSpan)
		}
		i, ok := last[k]
		if !ok || len(companions[i].References) >= maxJoined {
			p.References = slices.Clip(p.References) // those of the caller stay as they are
			last[k] = len(companions)
			companions = append(companions, p)
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
