// SPDX-License-Identifier: Apache-2.0

package search

import (
	"context"
	"errors"
	"fmt"
	"time"

	"overdue/internal/operations"
	"overdue/internal/servicebus/link"
)

// PageSize is the most messages that Service Bus returns for one peek ("Message browsing").
const PageSize = 250

// peekTime bounds one peek, including the opening of its link. A check as a whole has no bound:
// on a slow connection it would start over again and again.
const peekTime = 30 * time.Second

// partitionAt is the bit of a sequence number at which the number of the partition begins. Any
// other entity would take nine years to reach it, at a message per microsecond.
const partitionAt = 48

// ErrTooManyPeeks reports that a check has used up its peeks.
var ErrTooManyPeeks = errors.New("the check takes too many peeks")

// ReasonExpired is the dead-letter reason of messages that the broker has expired ("Overview of
// Service Bus dead-letter queues").
const ReasonExpired = "TTLExpiredException"

// ErrPartitioned reports that the numbers of the entity have just turned out not to be in the order
// of time, mostly since it is partitioned, so the search must start over.
var ErrPartitioned = errors.New("the sequence numbers of the entity are not in the order of time")

// View peeks at a queue or a dead-letter queue. One goroutine uses it.
type View struct {
	Links      *link.Namespace
	Path       string   // of the queue or sub-queue
	Next       []string // audiences that are claimed with it: the owner uses them soon
	Operations *operations.Counter
	peeker     *link.Peeker           // nil until the next peek
	Cursor     bool                   // sequence numbers are not in the order of time
	Index      SequenceIndex          // use provenIndex
	proven     time.Time              // by our clock: the last proof of the index
	Recreated  func(noticedBy string) // called when the queue was recreated; may be nil
	Seen       *SeenIDs
	Kept       *Kept           // shown as if they were still on the queue; nil: none
	Differ     func() bool     // dead letters may have other numbers; nil: no dead letters
	Restored   bool            // some had
	reached    int64           // number of the last message that was peeked
	recent     []*link.Message // see Recent
	recentAt   time.Time       // by our clock: they were there
	Peeks      int             // so far
	limited    bool            // left counts
	left       int             // peeks until errTooManyPeeks
}

// Peek returns up to n messages from the sequence number from on. An empty page means that
// there are none. A short one does not, since the bytes of a page are bounded too.
func (v *View) Peek(ctx context.Context, from int64, n int) ([]*link.Message, error) {
	pages, err := v.peekEach(ctx, []link.PeekRange{{From: from, N: n}})
	if err != nil {
		return nil, err
	}
	return pages[0], nil
}

// peekEach is peek for several ranges, in about the time of one.
func (v *View) peekEach(ctx context.Context, ranges []link.PeekRange) (pages [][]*link.Message, err error) {
	ctx, cancel := context.WithTimeout(ctx, peekTime)
	defer cancel()
	if err := v.open(ctx); err != nil {
		return nil, err
	}
	if !v.spend(len(ranges)) {
		return nil, ErrTooManyPeeks
	}
	pages, err = v.peeker.PeekEach(ctx, ranges)
	if err != nil {
		v.peeker = nil // it has closed itself
		return nil, fmt.Errorf("monitor: peek at %s: %w", v.Path, err)
	}
	for i, page := range pages {
		if pages[i], err = v.took(ranges[i].From, page); err != nil {
			return nil, err
		}
	}
	return pages, nil
}

// peekAhead is Peek for a page of many. If more accepts the number of messages and the last of
// them, the next page is on its way when it returns, and the caller has to go on with that one: it
// would be old when somebody else took it.
func (v *View) peekAhead(ctx context.Context, from int64, more func(n int, last *link.Message) bool) ([]*link.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, peekTime)
	defer cancel()
	if err := v.open(ctx); err != nil {
		return nil, err
	}
	r := link.PeekRange{From: from, N: PageSize}
	if v.peeker.Ahead() != r && !v.spend(1) {
		return nil, ErrTooManyPeeks
	}
	page, err := v.peeker.PeekAhead(ctx, r, func(n int, last *link.Message) bool { return more(n, last) && v.spend(1) })
	if err != nil {
		v.peeker = nil // it has closed itself
		return nil, fmt.Errorf("monitor: peek at %s: %w", v.Path, err)
	}
	return v.took(from, page)
}

// spend counts n peeks, and reports whether there may be so many more.
func (v *View) spend(n int) bool {
	if v.limited && v.left < n {
		return false
	}
	v.Peeks += n
	v.left -= n
	v.Operations.Add(operations.Peek, n)
	return true
}

// took takes a page that was read from a sequence number on.
func (v *View) took(from int64, page []*link.Message) ([]*link.Message, error) {
	if err := v.notePage(from, page); err != nil {
		return nil, err
	}
	first := page
	if v.Kept != nil && !v.Cursor {
		page, first = v.Kept.with(page, from)
	}
	if n := len(page); n > 0 {
		v.reached = page[n-1].SequenceNumber
	}
	if v.restoreAll(page) {
		first = page
	}
	v.noteSeen(first)
	return page, nil
}

// notePage keeps what a page says beyond what it was read for.
func (v *View) notePage(from int64, page []*link.Message) error {
	for _, m := range page {
		if m.SequenceNumber>>partitionAt != 0 && !v.Cursor {
			v.Cursor = true
			return fmt.Errorf("monitor: peek at %s: %w", v.Path, ErrPartitioned)
		}
		if m.SequenceNumber < from && !v.Cursor {
			return fmt.Errorf("monitor: peek at %s from %d: the broker returned the earlier number %d", v.Path, from, m.SequenceNumber)
		}
	}
	if len(page) > 0 && !v.Cursor {
		for _, m := range []*link.Message{page[0], page[len(page)-1]} {
			v.Index.Add(IndexPoint{m.SequenceNumber, m.EnqueuedTime})
		}
	}
	return nil
}

// noteSeen records the message-ids of a page.
func (v *View) noteSeen(page []*link.Message) {
	for _, m := range page {
		if v.Seen != nil && !Pending(m) { // it gets another number when it is activated
			waiting := limit{}
			if v.Differ == nil {
				waiting = limitOf(m)
			}
			v.Seen.add(m.MessageID, IdentityOf(m), waiting)
		}
	}
}

// Limit bounds the following peeks. A negative n removes the bound.
func (v *View) Limit(n int) { v.limited, v.left = n >= 0, n }

func (v *View) open(ctx context.Context) error {
	if v.peeker != nil {
		return nil
	}
	p, err := v.Links.Peeker(ctx, v.Path, v.Next...)
	if err != nil {
		return fmt.Errorf("monitor: open %s: %w", v.Path, err)
	}
	v.peeker = p
	return nil
}

// DeadLetterDeferred dead-letters a deferred message if it is available. session is the session
// whose lock is held, or nil. It defers the message again if early accepts the end of its lock.
func (v *View) DeadLetterDeferred(ctx context.Context, number int64, session *string, reason, description string, early func(lockedUntil time.Time) bool) (dead bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, peekTime)
	defer cancel()
	if err := v.open(ctx); err != nil {
		return false, err
	}
	lock, until, ok, err := v.peeker.TakeDeferred(ctx, number, session)
	v.Operations.Add(operations.Deferred, 1)
	switch {
	case ok && early(until):
		_, err = v.peeker.DeferAgain(ctx, lock, session)
	case ok:
		if dead, err = v.peeker.DeadLetter(ctx, lock, session, reason, description); dead {
			v.Operations.Add(operations.DeadLetter, 1)
		}
	}
	if err != nil {
		v.peeker = nil // it has closed itself
		return false, fmt.Errorf("monitor: expire deferred message %d of %s: %w", number, v.Path, err)
	}
	return dead, nil
}

// recentFor is how long a page counts as recent.
const recentFor = 2 * time.Second

// Recent returns the last page that was read to find messages, unless that is long ago. What it
// shows may be gone by now.
func (v *View) Recent() []*link.Message {
	if time.Since(v.recentAt) > recentFor {
		v.recent = nil
	}
	return v.recent
}

// Forget drops what is known of the queue.
func (v *View) Forget() { v.Index, v.recent = nil, nil }

// Close closes the links, so that an idle entity has none.
func (v *View) Close(ctx context.Context) {
	v.recent = nil
	if v.peeker != nil {
		v.peeker.Close(ctx)
		v.peeker = nil
	}
}
