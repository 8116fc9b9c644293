// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"context"
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
	// crowded.
	CrowdedWait = 5 * time.Second
	// joinTime is how far apart parts may come that share a companion.
	joinTime = 20 * time.Millisecond
)

// A Companion is a companion in hand, under its lock, until all its messages are seen to. Add
// counts watches: a watch is the check of one message. Done ends one, and may leave its message to
// a part, a companion that takes over. HandBack ends one at a stop. When the last watch has ended,
// the companion is settled once: it is handed back if all watches were, and completed otherwise,
// after its parts are written.
type Companion struct {
	Content scheduler.Companion
	Since   time.Time // by our clock: when it came

	in          *Intake
	lease       *Lease
	outstanding int // deadlines of it that have no verdict yet

	mu         sync.Mutex
	open       int                           // watches that have not ended
	how        settlement                    // handed back until a watch ends otherwise
	handedBack []*scheduler.Companion        // parts of the watches that HandBack ended
	parts      []scheduler.Companion         // of other watches, to be written
	writes     []func(context.Context) error // of parts: each returns when that is over
}

// Open reads the companion of a lease. It returns nil for one that cannot be parsed: that goes to
// the dead-letter queue of the monitor queue, with the reason.
func (in *Intake) Open(ctx context.Context, l *Lease) *Companion {
	content, err := scheduler.ParseCompanion(l.Body)
	if err != nil {
		in.log.Warn("companion refused: it is kept as a dead letter", zap.String("monitor_queue", l.Queue), zap.String("message_id", l.ID), zap.Error(err))
		// A flood of them must not delay the valid ones.
		in.settling.Go(func() { l.DeadLetter(ctx, Malformed, err.Error()) })
		return nil
	}
	h := &Companion{
		Content:     content,
		Since:       time.Now(),
		in:          in,
		lease:       l,
		outstanding: countOutstanding(&content),
	}
	if h.outstanding > 0 { // else it may be about no entity
		in.cfg.Outstanding(content.Entity, h.outstanding)
	}
	return h
}

// countOutstanding counts the deadlines of a companion that have no verdict yet. Of a missed one,
// only the notification is left.
func countOutstanding(content *scheduler.Companion) (n int) {
	for i := range content.References {
		if content.References[i].Missed == nil {
			n++
		}
	}
	return n
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

// Done ends one watch. part, if not nil, takes over: it is written joinTime later, with those that
// come meanwhile, since it may be due while other watches are still open.
func (h *Companion) Done(ctx context.Context, part *scheduler.Companion) {
	if part != nil {
		h.mu.Lock()
		h.parts = append(h.parts, *part)
		isFirst := len(h.parts) == 1
		h.mu.Unlock()
		if isFirst {
			time.AfterFunc(joinTime, h.writeParts)
		}
	}
	h.end(ctx, settlement{outcome: completed})
}

// writeParts begins to write the parts that have come.
func (h *Companion) writeParts() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, part := range h.parts {
		h.writes = append(h.writes, h.in.cfg.Scheduler.Begin(part))
	}
	h.parts = nil
}

// Refuse ends one watch of a companion that must not come back.
func (h *Companion) Refuse(ctx context.Context, reason, description string) {
	h.end(ctx, deadLetter(reason, description))
}

// HandBack ends one watch at a stop, and leaves its message to the next worker. part takes over if
// another watch has ended otherwise: its message must not be handled again.
func (h *Companion) HandBack(ctx context.Context, part *scheduler.Companion) {
	h.mu.Lock()
	h.handedBack = append(h.handedBack, part)
	h.mu.Unlock()
	h.end(ctx, settlement{})
}

// end ends one watch. Of all ends, the highest outcome counts.
func (h *Companion) end(ctx context.Context, how settlement) {
	h.mu.Lock()
	if how.outcome > h.how.outcome {
		h.how = how
	}
	h.open--
	isLast := h.open == 0
	h.mu.Unlock()
	h.in.watching.Add(-1)
	if isLast {
		if h.outstanding > 0 {
			h.in.cfg.Outstanding(h.Content.Entity, -h.outstanding)
		}
		// In a goroutine, since these are round trips, and the caller has other watches to handle.
		h.in.settling.Go(func() { h.settle(ctx) })
	}
}

// settle settles h once its parts are written. If one is not, h comes back.
func (h *Companion) settle(ctx context.Context) {
	if h.how.outcome > handedBack {
		h.mu.Lock() // a timer of Done may be writing
		for _, part := range h.handedBack {
			h.parts = append(h.parts, *part)
		}
		h.mu.Unlock()
	}
	h.writeParts()
	for _, write := range h.writes {
		if err := write(ctx); err != nil {
			h.in.log.Warn("companion not rewritten: its messages are checked again", zap.String("work_queue", h.Content.Entity), zap.Error(err))
			h.how.outcome = letGo
		}
	}
	h.lease.end(ctx, h.how)
}
