// SPDX-License-Identifier: Apache-2.0

package search

import (
	"context"
	"math"
	"sort"
	"time"

	"overdue/internal/servicebus/link"
)

// Between calls see with the messages that were enqueued from one instant until another, both
// included. A zero from is the beginning of the queue. If the entity turns out to be partitioned,
// see gets some messages twice.
func (v *View) Between(ctx context.Context, from, until time.Time, see func(*link.Message)) error {
	return v.Read(ctx, from, until, func(page []*link.Message) (more bool) {
		for _, m := range page {
			if !m.EnqueuedTime.Before(from) && !m.EnqueuedTime.After(until) {
				see(m)
			}
		}
		return true
	})
}

// seek returns a page in which, or right behind which, the messages begin that were enqueued at t
// or later. It is empty if there is none. Where messages arrive evenly that costs two or three
// peeks, however long the queue is. Where they have no order, it returns the first page.
func (v *View) seek(ctx context.Context, t time.Time) (page []*link.Message, err error) {
	if err := v.proveIndex(ctx); err != nil {
		return nil, err
	}
	s := newSeeker(v.index, t)
	for found := false; !found; {
		if v.Unordered {
			return v.Peek(ctx, 0, PageSize)
		}
		from := s.guess()
		if page, err = v.Peek(ctx, from, PageSize); err != nil {
			return nil, err
		}
		found = s.found(from, page)
	}
	return page, nil
}

// SeekPeeks is about how many peeks it takes to find one message of a window.
const SeekPeeks = 3

// Span returns about how many sequence numbers were given from one instant until another. Where they
// have no order, it is 0.
func (v *View) Span(ctx context.Context, from, until time.Time) (numbers int64, err error) {
	first, err := v.numberAt(ctx, from)
	if err != nil {
		return 0, err
	}
	last, err := v.numberAt(ctx, until)
	if err != nil || v.Unordered {
		return 0, err
	}
	return last - first, nil
}

// numberAt returns about the first number that was given at t or later. It asks the queue only where
// the index does not reach.
func (v *View) numberAt(ctx context.Context, t time.Time) (int64, error) {
	if len(v.index) == 0 || t.Before(v.index[0].Enqueued) || t.After(v.index[len(v.index)-1].Enqueued) {
		page, err := v.seek(ctx, t)
		switch {
		case err != nil || v.Unordered:
			return 0, err
		case len(page) > 0:
			return page[0].SequenceNumber, nil
		case len(v.index) == 0:
			return 0, nil
		}
		return v.index[len(v.index)-1].Number, nil
	}
	s := newSeeker(v.index, t)
	return s.lo.Number + s.distance(s.lo, s.hi), nil
}

// A seeker narrows down where the messages begin that were enqueued at t or later.
type seeker struct {
	t       time.Time
	lo, hi  indexPoint // lo was enqueued before t; hi and all behind it were not, or there is nothing
	base    indexPoint // the earliest point: messages arrived at a rate from there to lo
	guesses int
	step    int64 // of the last guess, as long as there is no hi
}

// newSeeker begins between the points of the index next to t.
func newSeeker(index sequenceIndex, t time.Time) *seeker {
	s := &seeker{t: t, lo: indexPoint{Number: -1}, hi: indexPoint{Number: math.MaxInt64}}
	i := sort.Search(len(index), func(i int) bool { return !index[i].Enqueued.Before(t) })
	if i > 0 {
		s.lo, s.base = index[i-1], index[0]
	}
	if i < len(index) {
		s.hi = index[i]
	}
	return s
}

// guess returns the number to read from next, behind lo and before hi. The first is right behind
// lo: mostly the queue is short, or t lies right behind what was read last. The next ones take it
// that messages arrived evenly. Every third halves what remains, however they arrived.
func (s *seeker) guess() int64 {
	s.guesses++
	remaining := s.hi.Number - s.lo.Number
	offset := remaining / 2
	switch {
	case s.guesses == 1 || remaining <= PageSize:
		return s.lo.Number + 1
	case s.hi.Number == math.MaxInt64:
		s.step = max(2*s.step, s.distance(s.base, s.lo), PageSize)
		offset = s.step
	case s.guesses%3 != 0 && !s.hi.Enqueued.IsZero():
		offset = s.distance(s.lo, s.hi)
	}
	offset -= PageSize / 2 // so that t is in the middle of the page
	return s.lo.Number + min(max(offset, 1), remaining-1)
}

// distance returns how many numbers behind lo t lies if messages arrive as they did from a to b.
func (s *seeker) distance(a, b indexPoint) int64 {
	span := max(b.Enqueued.Sub(a.Enqueued), StampPrecision)
	numbers := float64(b.Number-a.Number) * float64(s.t.Sub(s.lo.Enqueued)) / float64(span)
	return int64(min(numbers, 1<<partitionShift))
}

// found takes the page that was read from a guess on, and reports whether it is the one.
func (s *seeker) found(from int64, page []*link.Message) bool {
	behindLo := from == s.lo.Number+1
	if len(page) == 0 {
		s.hi = indexPoint{Number: from}
		return behindLo
	}
	first, last := pointOf(page[0]), pointOf(page[len(page)-1])
	if s.base.Enqueued.IsZero() {
		s.base = first
	}
	switch {
	case last.Enqueued.Before(s.t):
		s.lo = last
	case !behindLo && !first.Enqueued.Before(s.t):
		s.hi = indexPoint{from, first.Enqueued}
	default:
		return true
	}
	return false
}
