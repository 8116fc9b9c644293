// SPDX-License-Identifier: Apache-2.0

package search

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"overdue/internal/servicebus/link"
)

// firstPage is the size of the first peek after a seek, and pages grow by pageGrowth: what is
// searched for mostly stands within a few messages of its send time.
const (
	firstPage  = 64
	pageGrowth = 4
)

// Find searches for messages and sets found: by sequence number where it is known or guessed,
// then by message-id.
func (v *View) Find(ctx context.Context, wants []*Want, better Chooser) error {
	if err := v.FindNumbered(ctx, wants, better); err != nil && !errors.Is(err, ErrPartitioned) {
		return err
	}
	return v.FindNamed(ctx, wants, better)
}

// pageGap is how many other messages find reads rather than peeking once more: a round trip
// costs about as much as reading so many.
const pageGap = 64

// sparsePage is the least size of the first page. In a short dead-letter queue it has all that is
// wanted.
const sparsePage = 32

// maxRanges bounds the ranges that findNumbered peeks at side by side.
const maxRanges = 32

// FindNumbered reads the pages with the wanted sequence numbers. It begins with one page and
// doubles their number: where the queue is sparse, the first pages reach far, and few are needed.
func (v *View) FindNumbered(ctx context.Context, all []*Want, better Chooser) error {
	wants := slices.DeleteFunc(slices.Clone(all), func(w *Want) bool { return w.position() == 0 })
	if v.Kept != nil {
		wants = v.Kept.Take(wants)
	}
	slices.SortFunc(wants, func(a, b *Want) int { return cmp.Compare(a.position(), b.position()) })
	for n := 1; len(wants) > 0; n = min(2*n, maxRanges) {
		ranges, starts := rangesOf(wants, n)
		if n == 1 {
			ranges[0].N = max(ranges[0].N, sparsePage)
		}
		pages, err := v.peekEach(ctx, ranges)
		if err != nil {
			return err
		}
		v.recent, v.recentAt = pages[0], time.Now()
		var again []*Want // behind the end of a page that had no room for all of its range
		i := 0
		for j, page := range pages {
			for ; i < starts[j]; i++ {
				again = append(again, wants[i])
			}
			if len(page) == 0 {
				i = len(wants) // nothing stands from here on
				break
			}
			i += takeNumbered(wants[i:], page, better)
			i = max(i, starts[j]+1) // a page of a partitioned entity, perhaps, whose order is another
		}
		wants = append(again, wants[i:]...)
	}
	return nil
}

// rangesOf returns the first ranges, n at most, that hold the positions of wants, which are in
// order. starts are the indexes of the wants with which they begin.
func rangesOf(wants []*Want, n int) (ranges []link.PeekRange, starts []int) {
	for i := 0; i < len(wants) && len(ranges) < n; {
		first, last := wants[i].position(), wants[i].position()
		starts = append(starts, i)
		for ; i < len(wants); i++ {
			at := wants[i].position()
			if at-last > pageGap || at-first >= PageSize {
				break
			}
			last = at
		}
		ranges = append(ranges, link.PeekRange{From: first, N: int(last-first) + 1})
	}
	return ranges, starts
}

// takeNumbered gives the messages of a page to wants, which are in the order of their positions.
// It returns how many of them the page covers.
func takeNumbered(wants []*Want, page []*link.Message, better Chooser) (covered int) {
	i := 0
	for _, m := range page {
		for i < len(wants) && wants[i].position() < m.SequenceNumber {
			i++
		}
		for j := i; j < len(wants) && wants[j].position() == m.SequenceNumber; j++ {
			switch w := wants[j]; {
			case w.Identity == IdentityOf(m):
				w.Found = m
			case w.Number != 0: // that one has gone with the queue that it was on, and this is another
			case w.Fits(m):
				w.noteFit(m)
				if better(w, m) {
					w.Found, w.Agreed = m, true
				}
			}
		}
	}
	reached := page[len(page)-1].SequenceNumber
	for i < len(wants) && wants[i].position() <= reached {
		i++
	}
	return i
}

// FindNamed searches for messages without a known sequence number in their windows. One read
// serves all windows that it covers, and ends when all are found.
func (v *View) FindNamed(ctx context.Context, all []*Want, better Chooser) error {
	if !v.Cursor {
		if err := v.findInWindows(ctx, all, better); !errors.Is(err, ErrPartitioned) {
			return err
		}
	}
	return v.ReadAll(ctx, all, better)
}

// findInWindows is findNamed where sequence numbers are in the order of time.
func (v *View) findInWindows(ctx context.Context, all []*Want, better Chooser) error {
	wants := slices.DeleteFunc(slices.Clone(all), func(w *Want) bool { return w.Number != 0 || w.Found != nil })
	if err := v.readWindows(ctx, wants, better, func(w *Want) (from, likely, until time.Time) { return w.Likely, w.sent(), w.Until }); err != nil {
		return err
	}
	// What is not found where it should be is searched for in the margin before.
	wants = slices.DeleteFunc(wants, func(w *Want) bool { return w.Found != nil || !w.From.Before(w.Likely) })
	return v.readWindows(ctx, wants, better, func(w *Want) (from, likely, until time.Time) { return w.From, w.From, w.Likely })
}

// ReadAll reads the queue from its beginning until all messages are found. In a partitioned
// entity the number of the partition is part of the sequence number, so sequence numbers are
// not in the order of time, and whether a peek from a sequence number finds that message is not
// documented.
func (v *View) ReadAll(ctx context.Context, all []*Want, better Chooser) error {
	wants := slices.DeleteFunc(slices.Clone(all), func(w *Want) bool { return w.Found != nil })
	byID, bySeat := map[string][]*Want{}, map[Identity][]*Want{}
	for _, w := range wants {
		if w.Number != 0 {
			bySeat[w.Identity] = append(bySeat[w.Identity], w)
		} else {
			byID[w.MessageID] = append(byID[w.MessageID], w)
		}
	}
	missing := func() bool { return slices.ContainsFunc(wants, func(w *Want) bool { return w.Found == nil }) }
	if !missing() {
		return nil
	}
	return v.everywhere(ctx, func(page []*link.Message) bool {
		for _, m := range page {
			for _, w := range bySeat[IdentityOf(m)] {
				w.Found = m
			}
			Match(byID[m.MessageID], m, better)
		}
		return missing()
	})
}

// everywhere reads all messages, those that were kept and then in the order of peeks, until see
// needs no more.
func (v *View) everywhere(ctx context.Context, see func(page []*link.Message) (more bool)) error {
	if v.Kept != nil && v.Cursor {
		kept := v.Kept.all()
		v.restoreAll(kept)
		if len(kept) > 0 && !see(kept) {
			return nil
		}
	}
	for from := int64(0); ; {
		page, err := v.Peek(ctx, from, PageSize)
		if err != nil || len(page) == 0 || !see(page) {
			return err
		}
		next := v.reached + 1
		if next <= from {
			return fmt.Errorf("monitor: peek at %s from %d: the broker goes back to number %d", v.Path, from, next)
		}
		from = next
	}
}

// readWindows seeks to the window of the first want and reads on while windows overlap nearly,
// then seeks again. It tries the likely instant of a window before its beginning.
func (v *View) readWindows(ctx context.Context, wants []*Want, better Chooser, window func(*Want) (from, likely, until time.Time)) error {
	from := func(w *Want) time.Time { t, _, _ := window(w); return t }
	slices.SortFunc(wants, func(a, b *Want) int { return from(a).Compare(from(b)) })
	byID := ByMessageID(wants)
	match := func(page []*link.Message) {
		for _, m := range page {
			Match(byID[m.MessageID], m, better)
		}
	}
	for i := 0; i < len(wants); {
		if wants[i].Found != nil {
			i++
			continue
		}
		sought := i
		begin, likely, _ := window(wants[i])
		page, since, err := v.approach(ctx, begin, likely, func(page []*link.Message) bool {
			match(page)
			return wants[sought].Found != nil
		})
		covered := func(w *Want) bool { return !from(w).Before(since) }
		for size := firstPage; i < len(wants); {
			if err != nil || len(page) == 0 {
				return err // the windows of all others begin even later
			}
			v.recent, v.recentAt = page, time.Now()
			match(page)
			last := page[len(page)-1]
			reached := last.EnqueuedTime
			for i < len(wants) {
				_, _, until := window(wants[i])
				if wants[i].Found == nil && (!until.Before(reached) || !covered(wants[i])) {
					break
				}
				i++
			}
			if i > sought && i < len(wants) && (from(wants[i]).After(reached) || !covered(wants[i])) {
				break // a gap: seek across it. Behind a seek it is none: kept messages may follow the page
			}
			if i < len(wants) {
				size = min(size*pageGrowth, PageSize)
				page, err = v.Peek(ctx, v.reached+1, size)
			}
		}
	}
	return nil
}

// ByMessageID indexes wants by message-id.
func ByMessageID(wants []*Want) map[string][]*Want {
	byID := map[string][]*Want{}
	for _, w := range wants {
		byID[w.MessageID] = append(byID[w.MessageID], w)
	}
	return byID
}

// Match gives m to the first want that it fits, and reports whether there was one. It becomes
// the spare of the others, since two references may mean one message.
func Match(wants []*Want, m *link.Message, better Chooser) (given bool) {
	for _, w := range wants {
		if !w.Fits(m) {
			continue
		}
		w.noteFit(m)
		switch {
		case w.Found == nil && better(w, m):
			w.Found, w.Agreed, given = m, true, true
		case w.Spare == nil:
			w.Spare = m
		}
	}
	return given
}
