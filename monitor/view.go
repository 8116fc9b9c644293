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

// pageSize is the most messages that Service Bus returns for one peek ("Message browsing").
const pageSize = 250

// peekTime bounds one peek, including the opening of its link. A check as a whole has no bound:
// on a slow connection it would start over again and again.
const peekTime = 30 * time.Second

// partitionAt is the bit of a sequence number at which the number of the partition begins. Any
// other entity would take nine years to reach it, at a message per microsecond.
const partitionAt = 48

// errPartitioned reports that the entity has just turned out to be partitioned, so the search
// must start over.
var errPartitioned = errors.New("the entity is partitioned")

// view peeks at a queue or a dead-letter queue. One goroutine uses it.
type view struct {
	links       *link.Namespace
	path        string // of the queue or sub-queue
	operations  *operations.Counter
	peeker      *link.Peeker           // nil until the next peek
	cursor      bool                   // sequence numbers are not in the order of time
	index       sequenceIndex          // use provenIndex
	proven      time.Time              // by our clock: the last proof of the index
	recreated   func(noticedBy string) // called when the queue was recreated; may be nil
	seen        *seenIDs
	lastExpired seenDeadLetter // the seen dead letter that expired last
	peeks       int            // so far
	limited     bool           // left counts
	left        int            // peeks until errTooManyPeeks
}

// peek returns up to n messages from the sequence number from on. An empty page means that
// there are none. A short one does not, since the bytes of a page are bounded too.
func (v *view) peek(ctx context.Context, from int64, n int) ([]*link.Message, error) {
	pages, err := v.peekEach(ctx, []link.PeekRange{{From: from, N: n}})
	if err != nil {
		return nil, err
	}
	return pages[0], nil
}

// peekEach is peek for several ranges, in about the time of one.
func (v *view) peekEach(ctx context.Context, ranges []link.PeekRange) (pages [][]*link.Message, err error) {
	ctx, cancel := context.WithTimeout(ctx, peekTime)
	defer cancel()
	if v.limited && v.left < len(ranges) {
		return nil, errTooManyPeeks
	}
	if err := v.open(ctx); err != nil {
		return nil, err
	}
	v.peeks += len(ranges)
	v.left -= len(ranges)
	pages, err = v.peeker.PeekEach(ctx, ranges)
	v.operations.Add(operations.Peek, len(ranges))
	if err != nil {
		v.peeker = nil // it has closed itself
		return nil, fmt.Errorf("monitor: peek at %s: %w", v.path, err)
	}
	for i, page := range pages {
		if err := v.notePage(ranges[i].From, page); err != nil {
			return nil, err
		}
	}
	return pages, nil
}

// notePage keeps what a page says beyond what it was read for.
func (v *view) notePage(from int64, page []*link.Message) error {
	for _, m := range page {
		if m.SequenceNumber>>partitionAt != 0 && !v.cursor {
			v.cursor = true
			return fmt.Errorf("monitor: peek at %s: %w", v.path, errPartitioned)
		}
		if m.SequenceNumber < from && !v.cursor {
			return fmt.Errorf("monitor: peek at %s from %d brought number %d", v.path, from, m.SequenceNumber)
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
	return nil
}

// deadLetterAge bounds how long ago a dead letter has expired that serves as evidence of
// whether dead letters stay.
const deadLetterAge = 10 * time.Second

// seenDeadLetter is a dead letter that had a time to live of its own.
type seenDeadLetter struct {
	seat    identity
	expired time.Time
}

// recentDeadLetter returns the seen dead letter that expired last, unless that was long before
// now.
func (v *view) recentDeadLetter(now time.Time) identity {
	if now.Sub(v.lastExpired.expired).Abs() > deadLetterAge {
		return identity{}
	}
	return v.lastExpired.seat
}

// limit bounds the following peeks. A negative n removes the bound.
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

// deadLetterDeferred dead-letters a deferred message if it is available. session is the session
// whose lock is held, or nil.
func (v *view) deadLetterDeferred(ctx context.Context, number int64, session *string, reason, description string) (dead bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, peekTime)
	defer cancel()
	if err := v.open(ctx); err != nil {
		return false, err
	}
	lock, ok, err := v.peeker.TakeDeferred(ctx, number, session)
	v.operations.Add(operations.Deferred, 1)
	if ok {
		dead, err = v.peeker.DeadLetter(ctx, lock, session, reason, description)
	}
	if err != nil {
		v.peeker = nil // it has closed itself
		return false, fmt.Errorf("monitor: expire deferred message %d of %s: %w", number, v.path, err)
	}
	return dead, nil
}

// close closes the links, so that an idle entity has none.
func (v *view) close(ctx context.Context) {
	if v.peeker != nil {
		v.peeker.Close(ctx)
		v.peeker = nil
	}
}
