// SPDX-License-Identifier: Apache-2.0

package search

import (
	"context"
	"math"
	"sort"
	"time"

	"overdue/internal/servicebus/link"
)

// MaxIndexPoints bounds an index. When it is full, every second point is dropped, so that it
// still spans the queue.
const MaxIndexPoints = 512

// IndexPoint is the enqueued-time of one sequence number. It stays true when the message is
// gone, as long as its queue exists: see view.provenIndex.
type IndexPoint struct {
	Number   int64
	Enqueued time.Time
}

// SequenceIndex is points in the order of sequence numbers, which is the order of time.
type SequenceIndex []IndexPoint

func (l *SequenceIndex) Add(m IndexPoint) {
	i := sort.Search(len(*l), func(i int) bool { return (*l)[i].Number >= m.Number })
	if i < len(*l) && (*l)[i].Number == m.Number {
		return
	}
	if len(*l) == MaxIndexPoints {
		kept := (*l)[:0]
		for j := 0; j < len(*l); j += 2 {
			kept = append(kept, (*l)[j])
		}
		*l = kept
		i = sort.Search(len(*l), func(i int) bool { return (*l)[i].Number >= m.Number })
	}
	*l = append(*l, IndexPoint{})
	copy((*l)[i+1:], (*l)[i:])
	(*l)[i] = m
}

// Around returns the points next to t: the last one before it, and the first one not before it.
func (l SequenceIndex) Around(t time.Time) (before, after IndexPoint, hasBefore, hasAfter bool) {
	i := sort.Search(len(l), func(i int) bool { return !l[i].Enqueued.Before(t) })
	if i > 0 {
		before, hasBefore = l[i-1], true
	}
	if i < len(l) {
		after, hasAfter = l[i], true
	}
	return before, after, hasBefore, hasAfter
}

// seekPrecision is how many messages before t a seek may leave. Reading them costs less than
// another peek.
const seekPrecision = 64

// seek returns a sequence number from which on everything is found that was enqueued at t or
// later, with at most seekPrecision older messages before it. Without an index it costs about
// log2(numbers ÷ seekPrecision) peeks of one message. A zero t means the beginning.
func (v *View) seek(ctx context.Context, t time.Time) (int64, error) {
	if t.IsZero() {
		return 0, nil
	}
	marks, err := v.provenIndex(ctx)
	if err != nil {
		return 0, err
	}
	lo, hi, hasLo, hasHi := marks.Around(t)
	if !hasLo {
		// The oldest message that is there shows where the numbers begin.
		first, err := v.pointAt(ctx, 0)
		if err != nil || first == nil || !first.Enqueued.Before(t) {
			return 0, err
		}
		lo = *first
	}
	if !hasHi {
		if lo, hi, err = v.gallop(ctx, lo, t); err != nil {
			return 0, err
		}
	}
	for hi.Number-lo.Number > seekPrecision {
		guess := Between(lo, hi, t)
		m, err := v.pointAt(ctx, guess)
		switch {
		case err != nil:
			return 0, err
		case m == nil || m.Number >= hi.Number:
			hi.Number = guess // nothing lives between the guess and hi
		case m.Enqueued.Before(t):
			lo = *m
		default:
			hi = IndexPoint{guess, m.Enqueued}
		}
	}
	return lo.Number + 1, nil
}

// approach returns the first page of what was enqueued at t or later, with a few older messages
// before it. Mostly the queue is short behind the last point, so that this page is all it
// reads.
func (v *View) approach(ctx context.Context, t time.Time) ([]*link.Message, error) {
	marks, err := v.provenIndex(ctx)
	if err != nil {
		return nil, err
	}
	if before, _, hasBefore, hasAfter := marks.Around(t); !hasBefore || !hasAfter {
		at := int64(0)
		if hasBefore {
			at = before.Number + 1
		}
		page, err := v.Peek(ctx, at, firstPage)
		if err != nil || len(page) == 0 || !page[len(page)-1].EnqueuedTime.Before(t) {
			return page, err
		}
	}
	at, err := v.seek(ctx, t)
	if err != nil {
		return nil, err
	}
	return v.Peek(ctx, at, firstPage)
}

// gallop goes ahead from lo in doubling steps, to a message that is not before t, or the end.
func (v *View) gallop(ctx context.Context, lo IndexPoint, t time.Time) (_, hi IndexPoint, err error) {
	for step := int64(PageSize); ; step *= 2 {
		if step <= 0 || lo.Number > math.MaxInt64-step {
			return lo, IndexPoint{Number: math.MaxInt64}, nil
		}
		ahead := lo.Number + step
		m, err := v.pointAt(ctx, ahead)
		if err != nil {
			return lo, hi, err
		}
		if m == nil {
			return lo, IndexPoint{Number: ahead}, nil
		}
		if !m.Enqueued.Before(t) {
			return lo, IndexPoint{ahead, m.Enqueued}, nil
		}
		lo = *m
	}
}

// pointAt returns the point of the first message from number on, or nil.
func (v *View) pointAt(ctx context.Context, number int64) (*IndexPoint, error) {
	page, err := v.Peek(ctx, number, 1)
	if err != nil || len(page) == 0 {
		return nil, err
	}
	return &IndexPoint{page[0].SequenceNumber, page[0].EnqueuedTime}, nil
}

// Between guesses where between lo and hi t lies. Messages rarely arrive evenly, so the guess
// by time is moved half-way to the middle.
func Between(lo, hi IndexPoint, t time.Time) int64 {
	span := hi.Number - lo.Number
	at := 0.5
	if d := hi.Enqueued.Sub(lo.Enqueued); d > 0 {
		at = (at + float64(t.Sub(lo.Enqueued))/float64(d)) / 2
	}
	step := int64(float64(span) * at)
	return lo.Number + min(max(step, 1), span-1)
}
