// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"math"
	"sort"
	"time"

	"overdue/internal/servicebus/link"
)

// maxIndexPoints bounds an index. When it is full, every second point is dropped, so that it
// still spans the queue.
const maxIndexPoints = 512

// indexPoint is the enqueued-time of one sequence number. It stays true when the message is
// gone, as long as its queue exists: see view.provenIndex.
type indexPoint struct {
	number   int64
	enqueued time.Time
}

// sequenceIndex is points in the order of sequence numbers, which is the order of time.
type sequenceIndex []indexPoint

func (l *sequenceIndex) add(m indexPoint) {
	i := sort.Search(len(*l), func(i int) bool { return (*l)[i].number >= m.number })
	if i < len(*l) && (*l)[i].number == m.number {
		return
	}
	if len(*l) == maxIndexPoints {
		kept := (*l)[:0]
		for j := 0; j < len(*l); j += 2 {
			kept = append(kept, (*l)[j])
		}
		*l = kept
		i = sort.Search(len(*l), func(i int) bool { return (*l)[i].number >= m.number })
	}
	*l = append(*l, indexPoint{})
	copy((*l)[i+1:], (*l)[i:])
	(*l)[i] = m
}

// around returns the points next to t: the last one before it, and the first one not before it.
func (l sequenceIndex) around(t time.Time) (before, after indexPoint, hasBefore, hasAfter bool) {
	i := sort.Search(len(l), func(i int) bool { return !l[i].enqueued.Before(t) })
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
const seekPrecision = 32

// seek returns a sequence number from which on everything is found that was enqueued at t or
// later, with at most seekPrecision older messages before it. Without an index it costs about
// log2(numbers ÷ seekPrecision) peeks of one message. A zero t means the beginning.
func (v *view) seek(ctx context.Context, t time.Time) (int64, error) {
	if t.IsZero() {
		return 0, nil
	}
	marks, err := v.provenIndex(ctx)
	if err != nil {
		return 0, err
	}
	lo, hi, hasLo, hasHi := marks.around(t)
	if !hasLo {
		// The oldest message that is there shows where the numbers begin.
		first, err := v.pointAt(ctx, 0)
		if err != nil || first == nil || !first.enqueued.Before(t) {
			return 0, err
		}
		lo = *first
	}
	if !hasHi {
		if lo, hi, err = v.gallop(ctx, lo, t); err != nil {
			return 0, err
		}
	}
	for hi.number-lo.number > seekPrecision {
		guess := between(lo, hi, t)
		m, err := v.pointAt(ctx, guess)
		switch {
		case err != nil:
			return 0, err
		case m == nil || m.number >= hi.number:
			hi.number = guess // nothing lives between the guess and hi
		case m.enqueued.Before(t):
			lo = *m
		default:
			hi = indexPoint{guess, m.enqueued}
		}
	}
	return lo.number + 1, nil
}

// approach returns the first page of what was enqueued at t or later, with a few older messages
// before it. Mostly the queue is short behind the last point, so that this page is all it
// reads.
func (v *view) approach(ctx context.Context, t time.Time) ([]*link.Message, error) {
	marks, err := v.provenIndex(ctx)
	if err != nil {
		return nil, err
	}
	if before, _, hasBefore, hasAfter := marks.around(t); !hasBefore || !hasAfter {
		at := int64(0)
		if hasBefore {
			at = before.number + 1
		}
		page, err := v.peek(ctx, at, firstPage)
		if err != nil || len(page) == 0 || !page[len(page)-1].EnqueuedTime.Before(t) {
			return page, err
		}
	}
	at, err := v.seek(ctx, t)
	if err != nil {
		return nil, err
	}
	return v.peek(ctx, at, firstPage)
}

// gallop goes ahead from lo in doubling steps, to a message that is not before t, or the end.
func (v *view) gallop(ctx context.Context, lo indexPoint, t time.Time) (_, hi indexPoint, err error) {
	for step := int64(pageSize); ; step *= 2 {
		if step <= 0 || lo.number > math.MaxInt64-step {
			return lo, indexPoint{number: math.MaxInt64}, nil
		}
		ahead := lo.number + step
		m, err := v.pointAt(ctx, ahead)
		if err != nil {
			return lo, hi, err
		}
		if m == nil {
			return lo, indexPoint{number: ahead}, nil
		}
		if !m.enqueued.Before(t) {
			return lo, indexPoint{ahead, m.enqueued}, nil
		}
		lo = *m
	}
}

// pointAt returns the point of the first message from number on, or nil.
func (v *view) pointAt(ctx context.Context, number int64) (*indexPoint, error) {
	page, err := v.peek(ctx, number, 1)
	if err != nil || len(page) == 0 {
		return nil, err
	}
	return &indexPoint{page[0].SequenceNumber, page[0].EnqueuedTime}, nil
}

// between guesses where between lo and hi t lies. Messages rarely arrive evenly, so the guess
// by time is moved half-way to the middle.
func between(lo, hi indexPoint, t time.Time) int64 {
	span := hi.number - lo.number
	at := 0.5
	if d := hi.enqueued.Sub(lo.enqueued); d > 0 {
		at = (at + float64(t.Sub(lo.enqueued))/float64(d)) / 2
	}
	step := int64(float64(span) * at)
	return lo.number + min(max(step, 1), span-1)
}
