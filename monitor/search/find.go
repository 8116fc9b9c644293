// SPDX-License-Identifier: Apache-2.0

package search

import (
	"context"
	"math"
	"slices"
	"sort"
	"time"

	"overdue/internal/servicebus/link"
)

// maxRanges bounds the ranges that Find peeks at side by side, and so its memory.
const maxRanges = 32

// Find reads the pages on which the wanted messages stand, and calls see with every message of
// these pages, perhaps twice. A wanted message that see does not get is not there.
func (v *View) Find(ctx context.Context, wanted []Identity, see func(*link.Message)) error {
	if !v.Unordered {
		if err := v.findByNumber(ctx, wanted, see); err != nil || !v.Unordered {
			return err
		}
	}
	missing := make(map[Identity]bool, len(wanted))
	for _, w := range wanted {
		missing[w] = true
	}
	if len(missing) == 0 {
		return nil
	}
	return v.Read(ctx, time.Time{}, time.Time{}, func(page []*link.Message) (more bool) {
		for _, m := range page {
			delete(missing, IdentityOf(m))
			see(m)
		}
		return len(missing) > 0
	})
}

// First calls see with the messages of the first page. It returns the sequence number that the page
// reaches: that of the last message, or the highest of all if there is none.
func (v *View) First(ctx context.Context, see func(*link.Message)) (reached int64, err error) {
	page, err := v.Peek(ctx, 0, PageSize)
	for _, m := range page {
		see(m)
	}
	switch {
	case err != nil || v.Unordered:
		return 0, err
	case len(page) == 0:
		return math.MaxInt64, nil
	}
	return page[len(page)-1].SequenceNumber, nil
}

// findByNumber is Find where sequence numbers are in order. It begins with one page and doubles
// their number: where the queue is sparse, the first pages reach far, and few are needed.
func (v *View) findByNumber(ctx context.Context, wanted []Identity, see func(*link.Message)) error {
	numbers := make([]int64, len(wanted))
	for i, w := range wanted {
		numbers[i] = w.Number
	}
	slices.Sort(numbers)
	for n := 1; len(numbers) > 0; n = min(2*n, maxRanges) {
		ranges := rangesOf(numbers, n)
		if n == 1 {
			ranges[0].N = max(ranges[0].N, PageSize/4) // a short dead-letter queue has no more
		}
		pages, err := v.peekEach(ctx, ranges)
		if err != nil || v.Unordered {
			return err
		}
		for _, page := range pages {
			for _, m := range page {
				see(m)
			}
		}
		// A page may have no room for all of its range.
		numbers = slices.DeleteFunc(numbers, func(number int64) bool {
			i := sort.Search(len(ranges), func(i int) bool { return ranges[i].From > number })
			page := pages[i-1] // without a message: nothing stands from there on
			return len(page) == 0 || number <= page[len(page)-1].SequenceNumber
		})
	}
	return nil
}

// rangesOf returns the first ranges, n at most, that hold numbers, which are in order. Between two
// of them a quarter of a page may stand that nobody asked for: a round trip costs about as much.
func rangesOf(numbers []int64, n int) (ranges []link.PeekRange) {
	for i := 0; i < len(numbers) && len(ranges) < n; {
		first, last := numbers[i], numbers[i]
		for ; i < len(numbers) && numbers[i]-last <= PageSize/4 && numbers[i]-first < PageSize; i++ {
			last = numbers[i]
		}
		ranges = append(ranges, link.PeekRange{From: first, N: int(last-first) + 1})
	}
	return ranges
}
