// SPDX-License-Identifier: Apache-2.0

package nudge

import (
	"context"
	"slices"
	"time"

	"overdue/internal/servicebus/link"
	"overdue/monitor/search"
)

// Quiet tells in which spans of time nobody but this worker received from a queue. Nudges show
// that. A receive takes the oldest available message, and so does a nudge, which gives it back. If
// that message is there right before the next nudge, unchanged and with none before it since the
// last one, and that nudge gets it again or it has expired, nobody received meanwhile: a consumer
// would have taken it. So messages behind it were available all the time, and those that became
// overdue have expired. Older ones were not available: consumers hold them. A nudge that gets the
// same message as the last one, unchanged, shows the same without a read.
//
//	After: what the nudge got begins a span, unless one goes on
//	Before: it is still there, or nothing is ──▶ the span is known to go on up to that nudge
//	Before: anything else ──────────────────────▶ the span ends
//	After: the same message again ──▶ the span is known to go on up to that nudge
//	After: another message, and it has not expired ──▶ the span ends
//
// It does not notice a consumer that gives messages back and keeps some that are behind them, nor
// one whose first messages are received right before their deadline and settled right after it,
// within one interval between nudges.
type Quiet struct {
	spans []quietSpan   // the last one may go on
	open  bool          // it does
	next  available     // what the last nudge got
	got   *link.Message // the same
	from  int64         // the number of what the nudge before it got: nothing is left from there up to next
	nudge time.Time     // by the clock of the broker: the last nudge, or a little before
	fresh bool          // no read has followed that nudge
}

// quietSpan is a span of time in which nobody received.
type quietSpan struct {
	since time.Time // by our clock
	first int64     // messages from this number on were available
	upTo  time.Time // by the clock of the broker; zero: nothing has shown it yet
}

// maxQuietSpans bounds the remembered spans.
const maxQuietSpans = 16

// available is a message that a nudge got; zero: none.
type available struct {
	search.Identity
	deliveries uint32 // so far
}

func availableOf(m *link.Message) available {
	if m == nil {
		return available{}
	}
	return available{search.IdentityOf(m), m.DeliveryCount}
}

// Before finds out what became of what the last nudge got, and returns it, if the span goes on. now
// is the clock of the broker, or an earlier instant.
func (q *Quiet) Before(ctx context.Context, v *search.View, now time.Time) (*link.Message, error) {
	if !q.open {
		return nil, nil
	}
	m, err := q.read(ctx, v)
	if err != nil {
		q.open = false
		return nil, err
	}
	q.see(availableOf(m), now)
	return m, nil
}

// read returns the first message from the last nudge on that can be received, or nil.
func (q *Quiet) read(ctx context.Context, v *search.View) (*link.Message, error) {
	for n := 1; ; n = search.PageSize {
		page, err := v.Peek(ctx, q.from, n)
		if err != nil || len(page) == 0 {
			return nil, err
		}
		for _, m := range page {
			if m.State != link.Deferred && !search.Pending(m) {
				return m, nil
			}
			q.from = m.SequenceNumber + 1 // nobody can receive it
		}
	}
}

// see takes what was read.
func (q *Quiet) see(at available, now time.Time) {
	none := available{}
	last := &q.spans[len(q.spans)-1]
	switch {
	case at == none && q.next == none:
		// Nothing is locked, either. What comes from now on may be received unnoticed.
		last.upTo, q.open = now, false
	case q.next == none && q.fresh && !at.EnqueuedTime().Before(q.nudge):
		last.upTo, q.open = q.nudge, false // it has come since
	case at != q.next:
		q.open = false
	case q.fresh:
		last.upTo = q.nudge
	}
	q.fresh = false
}

// After takes the message that a nudge got, or nil. since is our clock before the nudge, and began
// that of the broker, or an earlier instant. mayExpire says that what Before returned can have
// expired by the end of the nudge.
func (q *Quiet) After(got *link.Message, since, began time.Time, mayExpire bool) {
	at := availableOf(got)
	if q.open && at != q.next && !mayExpire {
		q.open = false // somebody has taken it, or an older one came back
	}
	if q.open {
		if at == q.next && at != (available{}) {
			q.spans[len(q.spans)-1].upTo = began // nobody received in between
		}
		q.from = q.next.Number
	} else if at != (available{}) {
		if len(q.spans) == maxQuietSpans {
			q.spans = q.spans[:copy(q.spans, q.spans[1:])]
		}
		q.spans, q.open, q.from = append(q.spans, quietSpan{since: since, first: at.Number}), true, at.Number
	}
	q.next, q.got, q.nudge, q.fresh = at, got, began, true
}

// Moved reads the first message once more: what the nudge got may have expired before it was given
// back, and then the broker moves it.
func (q *Quiet) Moved(ctx context.Context, v *search.View) error {
	if !q.open {
		return nil
	}
	m, err := q.read(ctx, v)
	if err != nil {
		q.open = false
		return err
	}
	q.next, q.got = availableOf(m), m
	return nil
}

// Next returns what the last nudge got, or nil.
func (q *Quiet) Next() *link.Message { return q.got }

// Break ends the span. A receive went on that Quiet does not know.
func (q *Quiet) Break() { q.open = false }

// Open reports whether a span goes on.
func (q *Quiet) Open() bool { return q.open }

// UpTo returns how far the clock of the broker is known to have gone on in the span that goes on;
// zero: nothing has shown it yet.
func (q *Quiet) UpTo() time.Time { return q.spans[len(q.spans)-1].upTo }

// steadyAfter is how long a queue must be quiet for a new read of it to be worth its cost.
const steadyAfter = time.Second

// Steady returns since when the queue is quiet, if it has been so for a while.
func (q *Quiet) Steady() (since time.Time, steady bool) {
	if !q.open {
		return time.Time{}, false
	}
	last := q.spans[len(q.spans)-1]
	return last.since, !last.upTo.IsZero() && time.Since(last.since) >= steadyAfter
}

// Proves reports whether m was available, and nobody received, from the instant read of our clock,
// when m was there, until the instant due of the clock of the broker. If m is overdue then, it has
// expired. A deferred message is not available: it is received by its number.
func (q *Quiet) Proves(m *link.Message, read, due time.Time) bool {
	return m.State != link.Deferred && slices.ContainsFunc(q.spans, func(s quietSpan) bool {
		return !s.since.After(read) && !s.upTo.Before(due) && s.first <= m.SequenceNumber
	})
}

// Held reports whether a consumer held the message at the instant read of our clock, when it was
// there: a nudge before had left it, and got a later one.
func (q *Quiet) Held(number int64, read time.Time) bool {
	for i := len(q.spans) - 1; i >= 0; i-- {
		if s := q.spans[i]; s.since.Before(read) {
			return number < s.first
		}
	}
	return false
}
