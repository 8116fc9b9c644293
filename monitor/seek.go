// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"math"
	"sort"
	"time"

	"overdue/internal/servicebus/link"
)

// maxLandmarks bounds what a view remembers. When it is full every second one goes, so
// that what is left still spans the queue.
const maxLandmarks = 512

// mark says when the broker enqueued the message of one sequence number. It stays true when the message
// is gone, as long as its queue is there: see view.landmarks.
type mark struct {
	number   int64
	enqueued time.Time
}

// landmarks are marks in order of their numbers. Numbers rise with enqueued-time, so
// they are in order of time as well.
type landmarks []mark

func (l *landmarks) add(m mark) {
	i := sort.Search(len(*l), func(i int) bool { return (*l)[i].number >= m.number })
	if i < len(*l) && (*l)[i].number == m.number {
		return
	}
	if len(*l) == maxLandmarks {
		kept := (*l)[:0]
		for j := 0; j < len(*l); j += 2 {
			kept = append(kept, (*l)[j])
		}
		*l = kept
		i = sort.Search(len(*l), func(i int) bool { return (*l)[i].number >= m.number })
	}
	*l = append(*l, mark{})
	copy((*l)[i+1:], (*l)[i:])
	(*l)[i] = m
}

// around returns the landmarks next to t: the last one before it and the first one not
// before it, by enqueued-time.
func (l landmarks) around(t time.Time) (before, after mark, hasBefore, hasAfter bool) {
	i := sort.Search(len(l), func(i int) bool { return !l[i].enqueued.Before(t) })
	if i > 0 {
		before, hasBefore = l[i-1], true
	}
	if i < len(l) {
		after, hasAfter = l[i], true
	}
	return before, after, hasBefore, hasAfter
}

// seekGrain is how many messages before the wanted instant a seek leaves: reading them costs
// less than coming closer.
const seekGrain = 32

// seek returns a sequence number from which on everything is found that was enqueued
// at t or later, with at most seekGrain older messages before it. It costs about
// log2(numbers ÷ seekGrain) peeks of one message on a queue it knows nothing of, and fewer where
// landmarks are near. A zero t means the beginning.
func (v *view) seek(ctx context.Context, t time.Time) (int64, error) {
	if t.IsZero() {
		return 0, nil
	}
	marks, err := v.landmarks(ctx)
	if err != nil {
		return 0, err
	}
	lo, hi, hasLo, hasHi := marks.around(t)
	if !hasLo {
		// The oldest message that is there tells where the numbers begin.
		first, err := v.markAt(ctx, 0)
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
	for hi.number-lo.number > seekGrain {
		guess := between(lo, hi, t)
		m, err := v.markAt(ctx, guess)
		switch {
		case err != nil:
			return 0, err
		case m == nil || m.number >= hi.number:
			hi.number = guess // nothing lives between the guess and hi
		case m.enqueued.Before(t):
			lo = *m
		default:
			hi = mark{guess, m.enqueued}
		}
	}
	return lo.number + 1, nil
}

// approach returns the first page of what was enqueued at t or later, with a few older messages before it; an empty one when
// there is nothing. Mostly the queue is short behind what is known of it: then that page is all that is read.
func (v *view) approach(ctx context.Context, t time.Time) ([]*link.Message, error) {
	marks, err := v.landmarks(ctx)
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

// gallop goes ahead from lo in doubling steps until it meets a message that is not
// before t, or the end of the queue.
func (v *view) gallop(ctx context.Context, lo mark, t time.Time) (_, hi mark, err error) {
	for step := int64(pageSize); ; step *= 2 {
		if step <= 0 || lo.number > math.MaxInt64-step {
			return lo, mark{number: math.MaxInt64}, nil
		}
		ahead := lo.number + step
		m, err := v.markAt(ctx, ahead)
		if err != nil {
			return lo, hi, err
		}
		if m == nil {
			return lo, mark{number: ahead}, nil
		}
		if !m.enqueued.Before(t) {
			return lo, mark{ahead, m.enqueued}, nil
		}
		lo = *m
	}
}

// markAt is the mark of the first message from number on, nil when there is none.
func (v *view) markAt(ctx context.Context, number int64) (*mark, error) {
	page, err := v.peek(ctx, number, 1)
	if err != nil || len(page) == 0 {
		return nil, err
	}
	return &mark{page[0].SequenceNumber, page[0].EnqueuedTime}, nil
}

// between guesses where in the open interval t lies. Messages rarely arrive at an even
// pace, so the guess by time is drawn half-way to the middle.
func between(lo, hi mark, t time.Time) int64 {
	span := hi.number - lo.number
	at := 0.5
	if d := hi.enqueued.Sub(lo.enqueued); d > 0 {
		at = (at + float64(t.Sub(lo.enqueued))/float64(d)) / 2
	}
	step := int64(float64(span) * at)
	return lo.number + min(max(step, 1), span-1)
}
