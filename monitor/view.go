// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"overdue/internal/operations"
	"overdue/internal/servicebus/link"
)

// pageSize is how many messages one peek may bring: the most that Service Bus gives
// ("Message browsing").
const pageSize = 250

// peekTime bounds one peek, the opening of its link included. Every operation of a pass is bounded,
// so that a broker that stalls cannot keep it for ever; the pass is not, or it would begin anew
// again and again on a line that is only slow.
const peekTime = 30 * time.Second

// partitionAt is the bit from which on a number names its partition. Where nobody shows that an entity is partitioned, one
// beyond it does; in all others it would take a message per microsecond for nine years to get there.
const partitionAt = 48

// errPartitioned says that it has just been noticed, so that whoever seeks begins anew.
var errPartitioned = errors.New("the entity is partitioned")

// view peeks at one queue, or at its dead-letter queue. It is for one goroutine.
type view struct {
	links       *link.Namespace
	path        string // of the queue or sub-queue
	metrics     *metrics
	peeker      *link.Peeker           // nil until the next peek
	cursor      bool                   // numbers say nothing of the time: what is not where its number says is searched for everywhere
	index       sequenceIndex          // used by way of index points, which proves them
	proven      time.Time              // by our clock: when that was last
	recreated   func(noticedBy string) // is notified when it reads another queue of that name than before; nil: nobody wants to know
	seen        *seenIDs
	lastExpired seenDeadLetter // the dead letter that has expired last, of those that were seen
	peeks       int            // so far
	limited     bool           // left counts
	left        int            // peeks until errCostly
}

// peek brings up to n messages from sequence number from on. An empty page means that
// there is none; a short one does not, since its size in bytes is bounded too.
func (v *view) peek(ctx context.Context, from int64, n int) ([]*link.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, peekTime)
	defer cancel()
	if v.limited && v.left == 0 {
		return nil, errTooManyPeeks
	}
	if err := v.open(ctx); err != nil {
		return nil, err
	}
	v.peeks++
	v.left--
	page, err := v.peeker.Peek(ctx, from, n)
	v.metrics.operation(operations.Peek, 1)
	if err != nil {
		v.peeker = nil // it has closed itself
		return nil, fmt.Errorf("monitor: peek at %s: %w", v.path, err)
	}
	for _, m := range page {
		if m.SequenceNumber>>partitionAt != 0 && !v.cursor {
			v.cursor = true
			return nil, fmt.Errorf("monitor: peek at %s: %w", v.path, errPartitioned)
		}
		if m.SequenceNumber < from && !v.cursor {
			return nil, fmt.Errorf("monitor: peek at %s from %d brought number %d", v.path, from, m.SequenceNumber)
		}
		if !pending(m) { // it gets another number when it is activated
			v.seen.add(m.MessageID, identityOf(m))
		}
		if at := m.EnqueuedTime.Add(m.TimeToLive); m.DeadLetterReason == reasonExpired && m.TimeToLive > 0 && at.After(v.lastExpired.expired) {
			v.lastExpired = seenDeadLetter{identityOf(m), at}
		}
	}
	if len(page) > 0 && !v.cursor {
		for _, m := range []*link.Message{page[0], page[len(page)-1]} {
			v.index.add(indexPoint{m.SequenceNumber, m.EnqueuedTime})
		}
	}
	return page, nil
}

// deadLetterAge is how long ago a dead letter has expired at most that shows whether dead letters stay where they are.
const deadLetterAge = 10 * time.Second

// seenDeadLetter is a dead letter with a time to live of its own.
type seenDeadLetter struct {
	seat    identity
	expired time.Time
}

// recentDeadLetter is the dead letter that was seen and has expired last, zero if that was long before now, or its entity has ended its life
// before its time.
func (v *view) recentDeadLetter(now time.Time) identity {
	if now.Sub(v.lastExpired.expired).Abs() > deadLetterAge {
		return identity{}
	}
	return v.lastExpired.seat
}

// limit bounds the peeks that follow; negative: it does not.
func (v *view) limit(n int) { v.limited, v.left = n >= 0, n }

func (v *view) open(ctx context.Context) error {
	if v.peeker != nil {
		return nil
	}
	p, err := v.links.Peeker(ctx, v.path)
	if err != nil {
		return fmt.Errorf("monitor: open %s: %w", v.path, err)
	}
	v.peeker = p
	return nil
}

// deadLetterDeferred dead-letters the deferred message with that number, if it is to be had. session is that whose
// lock is held, nil where there are none.
func (v *view) deadLetterDeferred(ctx context.Context, number int64, session *string, description string) (dead bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, peekTime)
	defer cancel()
	if err := v.open(ctx); err != nil {
		return false, err
	}
	lock, ok, err := v.peeker.TakeDeferred(ctx, number, session)
	v.metrics.operation(operations.Deferred, 1)
	if ok {
		dead, err = v.peeker.DeadLetter(ctx, lock, session, reasonDeadline, description)
	}
	if err != nil {
		v.peeker = nil // it has closed itself
		return false, fmt.Errorf("monitor: expire deferred message %d of %s: %w", number, v.path, err)
	}
	return dead, nil
}

// close gives up the links, so that an idle entity costs none.
func (v *view) close(ctx context.Context) {
	if v.peeker != nil {
		v.peeker.Close(ctx)
		v.peeker = nil
	}
}
