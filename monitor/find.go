// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"overdue/internal/servicebus/link"
	"overdue/scheduler"
)

// forever ends the window of a reference whose sender had not measured the clock of the broker.
var forever = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// firstPage is the size of the first peek after a seek, and pages grow by pageGrowth: what is
// searched for mostly stands within a few messages of its send time.
const (
	firstPage  = 16
	pageGrowth = 4
)

// want is the search for one message.
type want struct {
	identity                         // of the message; zero: unknown
	hint        int64                // its probable sequence number; 0: none
	ref         *scheduler.Reference // of the message
	messageID   string
	from, until time.Time     // the window of its enqueued-time
	likely      time.Time     // most likely it was enqueued at this instant or later
	endless     bool          // its entity gives messages no time to live
	found       *link.Message // the result
	spare       *link.Message // the result if there is no better one

	firstFit      identity  // of the first message that fits
	duplicates    bool      // other messages fit, or may
	agreed        bool      // a chooser has picked the result
	lateCandidate time.Time // the enqueued-time of a doubtful result
	upTo          time.Time // of duplicates: the latest enqueued-time; zero: any
}

// A chooser reports whether m, which matches, is the message of w. It then belongs to w alone.
// If not, m is a spare in case no other message matches.
type chooser func(w *want, m *link.Message) bool

// find searches for messages and sets found: by sequence number where it is known or guessed,
// then by message-id.
func (v *view) find(ctx context.Context, wants []*want, better chooser) error {
	if err := v.findNumbered(ctx, wants, better); err != nil && !errors.Is(err, errPartitioned) {
		return err
	}
	return v.findNamed(ctx, wants, better)
}

// position is the sequence number to try first.
func (w *want) position() int64 {
	if w.number != 0 {
		return w.number
	}
	return w.hint
}

// pageGap is how many other messages find reads rather than peeking once more: a round trip
// costs about as much as reading so many.
const pageGap = 64

// maxRanges bounds the ranges that findNumbered peeks at side by side.
const maxRanges = 32

// findNumbered reads the pages with the wanted sequence numbers. It begins with one page and
// doubles their number: where the queue is sparse, the first pages reach far, and few are needed.
func (v *view) findNumbered(ctx context.Context, all []*want, better chooser) error {
	wants := slices.DeleteFunc(slices.Clone(all), func(w *want) bool { return w.position() == 0 })
	slices.SortFunc(wants, func(a, b *want) int { return cmp.Compare(a.position(), b.position()) })
	for n := 1; len(wants) > 0; n = min(2*n, maxRanges) {
		ranges, starts := rangesOf(wants, n)
		pages, err := v.peekEach(ctx, ranges)
		if err != nil {
			return err
		}
		var again []*want // behind the end of a page that had no room for all of its range
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
func rangesOf(wants []*want, n int) (ranges []link.PeekRange, starts []int) {
	for i := 0; i < len(wants) && len(ranges) < n; {
		first, last := wants[i].position(), wants[i].position()
		starts = append(starts, i)
		for ; i < len(wants); i++ {
			at := wants[i].position()
			if at-last > pageGap || at-first >= pageSize {
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
func takeNumbered(wants []*want, page []*link.Message, better chooser) (covered int) {
	i := 0
	for _, m := range page {
		for i < len(wants) && wants[i].position() < m.SequenceNumber {
			i++
		}
		for j := i; j < len(wants) && wants[j].position() == m.SequenceNumber; j++ {
			switch w := wants[j]; {
			case w.identity == identityOf(m):
				w.found = m
			case w.number != 0: // that one has gone with the queue that it was on, and this is another
			case w.fits(m):
				w.noteFit(m)
				if better(w, m) {
					w.found, w.agreed = m, true
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

// fits reports whether m matches: its message-id, an enqueued-time in the window, and a
// deadline.
func (w *want) fits(m *link.Message) bool {
	enqueued := m.EnqueuedTime
	return m.MessageID == w.messageID && !enqueued.Before(w.from) && !enqueued.After(w.until) && !w.notWanted(m)
}

// notWanted reports whether m is certainly another message, because it has no deadline of the
// kind that the reference states.
func (w *want) notWanted(m *link.Message) bool {
	return w.hasNoDeadline(m) && (w.ref.Stated != "default" || !completes(w.ref, m))
}

// hasNoDeadline reports whether m waits and states no deadline, although the wanted message has
// one. A dead letter is not judged by this, since it has expired.
func (w *want) hasNoDeadline(m *link.Message) bool {
	if m.DeadLetterReason != "" || m.TimeToLive > 0 {
		return false
	}
	switch w.ref.Stated {
	case "deadline", "within", "ttl":
	case "default": // of another subscription, or of other times
		if !w.endless {
			return false
		}
	default:
		return false
	}
	return !statesDeadline(m)
}

// statesDeadline reports whether m has a deadline in its properties, valid or not.
func statesDeadline(m *link.Message) bool {
	at, within, err := scheduler.StatedDeadline(func(name string) any { return m.Properties[name] })
	return err != nil || !at.IsZero() || within > 0
}

// findNamed searches for messages without a known sequence number in their windows. One read
// serves all windows that it covers, and ends when all are found.
func (v *view) findNamed(ctx context.Context, all []*want, better chooser) error {
	if !v.cursor {
		if err := v.findInWindows(ctx, all, better); !errors.Is(err, errPartitioned) {
			return err
		}
	}
	return v.readAll(ctx, all, better)
}

// findInWindows is findNamed where sequence numbers are in the order of time.
func (v *view) findInWindows(ctx context.Context, all []*want, better chooser) error {
	wants := slices.DeleteFunc(slices.Clone(all), func(w *want) bool { return w.number != 0 || w.found != nil })
	if err := v.readWindows(ctx, wants, better, func(w *want) (from, until time.Time) { return w.likely, w.until }); err != nil {
		return err
	}
	// What is not found where it should be is searched for in the margin before.
	wants = slices.DeleteFunc(wants, func(w *want) bool { return w.found != nil || !w.from.Before(w.likely) })
	return v.readWindows(ctx, wants, better, func(w *want) (from, until time.Time) { return w.from, w.likely })
}

// readAll reads the queue from its beginning until all messages are found. In a partitioned
// entity the number of the partition is part of the sequence number, so sequence numbers are
// not in the order of time, and whether a peek from a sequence number finds that message is not
// documented.
func (v *view) readAll(ctx context.Context, all []*want, better chooser) error {
	wants := slices.DeleteFunc(slices.Clone(all), func(w *want) bool { return w.found != nil })
	byID, bySeat := map[string][]*want{}, map[identity][]*want{}
	for _, w := range wants {
		if w.number != 0 {
			bySeat[w.identity] = append(bySeat[w.identity], w)
		} else {
			byID[w.messageID] = append(byID[w.messageID], w)
		}
	}
	missing := func() bool { return slices.ContainsFunc(wants, func(w *want) bool { return w.found == nil }) }
	if !missing() {
		return nil
	}
	return v.everywhere(ctx, func(page []*link.Message) bool {
		for _, m := range page {
			for _, w := range bySeat[identityOf(m)] {
				w.found = m
			}
			match(byID[m.MessageID], m, better)
		}
		return missing()
	})
}

// everywhere reads all messages, in the order of peeks, until see needs no more.
func (v *view) everywhere(ctx context.Context, see func(page []*link.Message) (more bool)) error {
	for from := int64(0); ; {
		page, err := v.peek(ctx, from, pageSize)
		if err != nil || len(page) == 0 || !see(page) {
			return err
		}
		next := page[len(page)-1].SequenceNumber + 1
		if next <= from {
			return fmt.Errorf("monitor: peek at %s from %d comes back to %d", v.path, from, next)
		}
		from = next
	}
}

// readWindows seeks to the window of the first want and reads on while windows overlap nearly,
// then seeks again.
func (v *view) readWindows(ctx context.Context, wants []*want, better chooser, window func(*want) (from, until time.Time)) error {
	from := func(w *want) time.Time { t, _ := window(w); return t }
	slices.SortFunc(wants, func(a, b *want) int { return from(a).Compare(from(b)) })
	byID := byMessageID(wants)
	for i := 0; i < len(wants); {
		if wants[i].found != nil {
			i++
			continue
		}
		page, err := v.approach(ctx, from(wants[i]))
		for size := firstPage; i < len(wants); {
			if err != nil || len(page) == 0 {
				return err // the windows of all others begin even later
			}
			for _, m := range page {
				match(byID[m.MessageID], m, better)
			}
			last := page[len(page)-1]
			reached := last.EnqueuedTime
			for i < len(wants) {
				if _, until := window(wants[i]); wants[i].found == nil && !until.Before(reached) {
					break
				}
				i++
			}
			if i < len(wants) && from(wants[i]).After(reached) {
				break // a gap: seek across it
			}
			if i < len(wants) {
				size = min(size*pageGrowth, pageSize)
				page, err = v.peek(ctx, last.SequenceNumber+1, size)
			}
		}
	}
	return nil
}

// match gives m to the first want that it fits, and reports whether there was one. It becomes
// the spare of the others, since two references may mean one message.
func match(wants []*want, m *link.Message, better chooser) (given bool) {
	for _, w := range wants {
		if !w.fits(m) {
			continue
		}
		w.noteFit(m)
		switch {
		case w.found == nil && better(w, m):
			w.found, w.agreed, given = m, true, true
		case w.spare == nil:
			w.spare = m
		}
	}
	return given
}
