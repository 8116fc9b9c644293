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

// ahead guesses how many numbers after the last point t lies: as many as there were in as long
// a time before that point.
func (l SequenceIndex) ahead(t time.Time) int64 {
	if len(l) == 0 {
		return PageSize
	}
	last := l[len(l)-1]
	wait := t.Sub(last.Enqueued)
	before, _, known, _ := l.Around(last.Enqueued.Add(-wait))
	if !known {
		before = l[0]
	}
	return distance(before, last, t)
}

// distance guesses how many numbers after b t lies, if as many arrive from now on as from a to b.
func distance(a, b IndexPoint, t time.Time) int64 {
	d, wait := max(b.Enqueued.Sub(a.Enqueued), StampPrecision), t.Sub(b.Enqueued)
	if wait <= 0 {
		return PageSize
	}
	n := float64(b.Number-a.Number) * (float64(wait) / float64(d))
	return max(PageSize, int64(min(n, 1<<40)))
}

// seekPrecision is how many messages before t a seek may leave: a page, which costs one peek like
// another guess.
const seekPrecision = PageSize

// seek returns a sequence number from which on everything is found that was enqueued at t or
// later, with at most seekPrecision older messages before it; and the page there, if it has read
// that. A zero t means the beginning. Where messages arrive evenly it costs two or three peeks,
// however long the queue is. It ends early at a page for which done is true; nil: at none.
func (v *View) seek(ctx context.Context, t time.Time, done func(page []*link.Message) bool) (from int64, page []*link.Message, err error) {
	if t.IsZero() {
		return 0, nil, nil
	}
	points, err := v.provenIndex(ctx)
	if err != nil {
		return 0, nil, err
	}
	lo, hi, hasLo, hasHi := points.Around(t)
	if !hasLo {
		// The oldest message that is there shows where the numbers begin.
		first, err := v.Peek(ctx, 0, 1)
		if err != nil || len(first) == 0 || !first[0].EnqueuedTime.Before(t) {
			return 0, nil, err
		}
		lo = pointOf(first[0])
	}
	if !hasHi {
		hi.Number = math.MaxInt64
	}
	s := seeker{lo: lo, hi: hi, ahead: points.ahead(t)}
	for s.hi.Number-s.lo.Number > seekPrecision {
		from = s.guess(t)
		if page, err = v.Peek(ctx, from, seekPrecision); err != nil {
			return 0, nil, err
		}
		if done != nil && done(page) || s.found(from, page, t) {
			return from, page, nil
		}
	}
	return s.lo.Number + 1, nil, nil
}

// approach returns a page from which to search for what was enqueued at from or later: that of the
// earliest such messages, with a few older ones before it, or one of around likely for which done is
// true. What was enqueued at since or later stands on the page or behind it. Mostly the queue is
// short behind the last point, and dead letters are few, so that this page is all it reads.
func (v *View) approach(ctx context.Context, from, likely time.Time, done func(page []*link.Message) bool) (page []*link.Message, since time.Time, err error) {
	points, err := v.provenIndex(ctx)
	if err != nil {
		return nil, from, err
	}
	before, _, hasBefore, hasAfter := points.Around(from)
	if !hasBefore || v.Differ != nil || !hasAfter && points.ahead(from) < farAhead {
		at := int64(0)
		if hasBefore {
			at = before.Number + 1
		}
		page, err := v.Peek(ctx, at, firstPage)
		if err != nil || len(page) == 0 || !page[len(page)-1].EnqueuedTime.Before(from) {
			return page, from, err
		}
	}
	if likely.After(from) {
		switch page, err := v.pageAt(ctx, likely, done); {
		case err != nil:
			return nil, from, err
		case len(page) > 0 && page[0].EnqueuedTime.Before(from):
			return page, from, nil
		case len(page) > 0 && done(page):
			return page, page[0].EnqueuedTime.Add(StampPrecision), nil
		}
	}
	page, err = v.pageAt(ctx, from, nil)
	return page, from, err
}

// pageAt is seek, and returns the page there.
func (v *View) pageAt(ctx context.Context, t time.Time, done func(page []*link.Message) bool) ([]*link.Message, error) {
	at, page, err := v.seek(ctx, t, done)
	if err != nil || page != nil {
		return page, err
	}
	return v.Peek(ctx, at, seekPrecision)
}

// farAhead is from which distance on a search does not expect what it wants behind the last point.
const farAhead = 16 * PageSize

// A seeker narrows down where t lies.
type seeker struct {
	lo, hi IndexPoint // lo was enqueued before t; hi and all behind it were not, or there is nothing
	ahead  int64      // how far behind lo t lies, as long as there is no hi
	tries  int
	side   int // how many guesses in a row were too low; negative: too high
}

// evenTries is how many guesses of a seek expect that messages arrived evenly. The others halve
// what is left, however they arrived.
const evenTries = 12

// guess returns the number to try next, which lies between lo and hi. The distance from the nearer
// one doubles with each guess after the second that misses on the same side: messages that were
// enqueued within one millisecond have one stamp.
func (s *seeker) guess(t time.Time) int64 {
	s.tries++
	span := float64(s.hi.Number - s.lo.Number)
	low := float64(s.ahead)
	if s.hi.Number != math.MaxInt64 {
		low = span * share(s.lo, s.hi, t)
	}
	at := max(low, seekPrecision) * math.Exp2(float64(max(s.side-2, 0)))
	switch {
	case s.tries > evenTries:
		at = span / 2
	case s.side < 0:
		at = span - max(span-low, seekPrecision)*math.Exp2(float64(max(-s.side-2, 0)))
	}
	return max(s.lo.Number+int64(min(max(at, 1), span-1))-seekPrecision/2, s.lo.Number+1)
}

// found takes the page that was read from a guess on, and reports whether t lies in it.
func (s *seeker) found(from int64, page []*link.Message, t time.Time) bool {
	for len(page) > 0 && page[len(page)-1].SequenceNumber >= s.hi.Number {
		page = page[:len(page)-1]
	}
	if len(page) == 0 {
		s.hi.Number = from // nothing lives between from and hi
		s.side = min(s.side, 0) - 1
		return false
	}
	switch first, last := page[0], page[len(page)-1]; {
	case last.EnqueuedTime.Before(t):
		s.ahead = distance(s.lo, pointOf(last), t)
		s.lo = pointOf(last)
		s.side = max(s.side, 0) + 1
	case !first.EnqueuedTime.Before(t):
		s.hi = IndexPoint{from, first.EnqueuedTime}
		s.side = min(s.side, 0) - 1
	default:
		return true
	}
	return false
}

func pointOf(m *link.Message) IndexPoint { return IndexPoint{m.SequenceNumber, m.EnqueuedTime} }

// share returns which part of the time from lo to hi t lies after lo, or a half if that is unknown.
func share(lo, hi IndexPoint, t time.Time) float64 {
	if d := hi.Enqueued.Sub(lo.Enqueued); d > 0 {
		return float64(t.Sub(lo.Enqueued)) / float64(d)
	}
	return 0.5
}
