// SPDX-License-Identifier: Apache-2.0

package search

import (
	"context"
	"fmt"
	"time"

	"overdue/internal/operations"
	"overdue/internal/servicebus/link"
)

const (
	// PageSize bounds the messages of a peek.
	PageSize = link.PageSize
	// partitionShift is the bit of a sequence number at which the number of the partition begins.
	// Any other entity would take nine years to reach it, at a message per microsecond.
	partitionShift = 48
)

// View peeks at a queue or a dead-letter queue. One goroutine uses it.
type View struct {
	Links      *link.Namespace
	Path       string   // of the queue or sub-queue
	Next       []string // audiences that are claimed with it: the owner uses them soon
	Operations *operations.Counter
	Unordered  bool                   // no order of time in numbers; the View sets it too
	Recreated  func(noticedBy string) // called when the queue was recreated; may be nil
	Peeks      int                    // so far

	peeker *link.Peeker  // nil until the next peek
	index  sequenceIndex // use proveIndex first
	proven time.Time     // by our clock: the last proof of the index
}

// Peek returns up to n messages from the sequence number from on. An empty page means that there
// are none. A short one does not, since the bytes of a page are bounded too.
func (v *View) Peek(ctx context.Context, from int64, n int) ([]*link.Message, error) {
	return v.peekAhead(ctx, link.PeekRange{From: from, N: n}, time.Time{})
}

// Body returns the body of the message with a sequence number, nil if there is no such message.
func (v *View) Body(ctx context.Context, number int64) (body []byte, err error) {
	err = v.call(ctx, "peek at", 1, func() (err error) {
		body, err = v.peeker.PeekBody(ctx, number)
		return err
	})
	return body, err
}

// peekEach is Peek for several ranges, in about the time of one.
func (v *View) peekEach(ctx context.Context, ranges []link.PeekRange) (pages [][]*link.Message, err error) {
	err = v.call(ctx, "peek at", len(ranges), func() (err error) {
		pages, err = v.peeker.PeekEach(ctx, ranges)
		return err
	})
	for i, page := range pages {
		if err == nil {
			err = v.notePage(ranges[i].From, page)
		}
	}
	return pages, err
}

// peekAhead is Peek for one of many pages. Unless the page reaches beyond until, the next one is on
// its way when peekAhead returns, so that both sides work at a time.
func (v *View) peekAhead(ctx context.Context, r link.PeekRange, until time.Time) (page []*link.Message, err error) {
	err = v.call(ctx, "peek at", 1, func() (err error) {
		page, err = v.peeker.PeekAhead(ctx, r, func(_ int, last *link.Message) bool {
			return !last.EnqueuedTime.After(until)
		})
		return err
	})
	if err == nil {
		err = v.notePage(r.From, page)
	}
	return page, err
}

// call calls use, which makes that many peeks, while the peeker is open. An error closes it.
func (v *View) call(ctx context.Context, operation string, peeks int, use func() error) (err error) {
	if v.peeker == nil {
		if v.peeker, err = v.Links.Peeker(ctx, v.Path, v.Next...); err != nil {
			return fmt.Errorf("monitor: open %s: %w", v.Path, err)
		}
	}
	v.Peeks += peeks
	v.Operations.Add(operations.Peek, peeks)
	if err := use(); err != nil {
		v.peeker = nil
		return fmt.Errorf("monitor: %s %s: %w", operation, v.Path, err)
	}
	return nil
}

// notePage adds to the index what a page shows, and notes the first number of a partition.
func (v *View) notePage(from int64, page []*link.Message) error {
	if len(page) == 0 {
		return nil
	}
	first, last := pointOf(page[0]), pointOf(page[len(page)-1])
	switch {
	case last.Number < from:
		return fmt.Errorf("monitor: peek at %s from %d: the broker returned the earlier number %d", v.Path, from, last.Number)
	case last.Number>>partitionShift != 0:
		v.Unordered = true
	default:
		v.index.add(first)
		v.index.add(last)
	}
	return nil
}

// Read calls see with the pages that have the messages of a window, until it needs no more. In a
// partitioned entity the number of the partition is part of the sequence number, so sequence
// numbers are not in the order of time: then it reads all pages. If that turns out meanwhile, it
// starts over.
func (v *View) Read(ctx context.Context, from, until time.Time, see func(page []*link.Message) (more bool)) error {
	startsOver := !v.Unordered
	page, err := v.seek(ctx, from)
	for err == nil && len(page) > 0 {
		if startsOver && v.Unordered {
			return v.Read(ctx, from, until, see)
		}
		last := page[len(page)-1]
		if !see(page) || !v.Unordered && last.EnqueuedTime.After(until) {
			return nil
		}
		page, err = v.peekAhead(ctx, link.PeekRange{From: last.SequenceNumber + 1, N: PageSize}, until)
	}
	return err
}

// DeadLetterDeferred dead-letters a deferred message if it is available. session is the session
// whose lock is held, or nil. It defers the message again if early accepts the end of its lock.
func (v *View) DeadLetterDeferred(ctx context.Context, number int64, session *string, reason, description string, early func(lockedUntil time.Time) bool) (dead bool, err error) {
	err = v.call(ctx, fmt.Sprintf("expire deferred message %d of", number), 0, func() error {
		lock, until, ok, err := v.peeker.TakeDeferred(ctx, number, session)
		v.Operations.Add(operations.Deferred, 1)
		switch {
		case err != nil || !ok:
		case early(until):
			_, err = v.peeker.DeferAgain(ctx, lock, session)
		default:
			if dead, err = v.peeker.DeadLetter(ctx, lock, session, reason, description); dead {
				v.Operations.Add(operations.DeadLetter, 1)
			}
		}
		return err
	})
	return dead && err == nil, err
}

// Hint says that what was enqueued until an instant has numbers up to that one. It is not trusted
// where the queue contradicts it.
func (v *View) Hint(number int64, until time.Time) {
	if number > 0 {
		v.index.add(indexPoint{number, until})
	}
}

// Forget drops what is known of the queue.
func (v *View) Forget() { v.index = nil }

// Close closes the links, so that an idle entity has none.
func (v *View) Close(ctx context.Context) {
	if v.peeker != nil {
		v.peeker.Close(ctx)
		v.peeker = nil
	}
}
