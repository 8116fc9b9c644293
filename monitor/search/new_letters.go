// SPDX-License-Identifier: Apache-2.0

package search

import (
	"context"
	"errors"
	"time"

	"overdue/internal/servicebus/link"
)

// maxKeptPages bounds the pages that are read right behind a nudge. A dead-letter queue that
// somebody empties is short.
const maxKeptPages = 8

// keepPause is how long no pages are read after nobody had taken a message from the first one, or
// what has expired is proven without them, as long as it is not known whether dead letters stay.
const keepPause = 100 * time.Millisecond

// NewLetters reads dead letters right behind receives that may have made them.
type NewLetters struct {
	front Identity  // the first of a full page, at the last read
	again time.Time // by our clock: no read before, while it is unknown whether letters stay
}

// Read reads the dead letters that a receive has just made, where they may be taken away. A
// consumer that empties the queue needs a round trip to settle. A read right after the receive
// usually comes first. proven says that the dead letters are needed for nothing but to see whether
// they stay.
func (l *NewLetters) Read(ctx context.Context, state LetterState, proven bool, dead *View, see func(page []*link.Message)) error {
	switch {
	case state == LettersStay || state == LettersTaken && proven:
		return nil
	case state == LettersTaken:
		_, err := readPages(ctx, dead, see, Identity{})
		return err
	}
	if time.Now().Before(l.again) {
		return nil
	}
	front, err := readPages(ctx, dead, see, l.front)
	if proven || front == l.front && front != (Identity{}) {
		l.again = time.Now().Add(keepPause)
	}
	l.front = front
	return err
}

// readPages reads the first pages of a dead-letter queue, and returns the first message of a full
// page, which front was the last time. If a full page still begins with it, nobody empties the
// queue, and the new dead letters stand anywhere behind.
func readPages(ctx context.Context, dead *View, see func(page []*link.Message), front Identity) (now Identity, err error) {
	for from, pages := int64(0), 0; pages < maxKeptPages; pages++ {
		page, err := dead.peekAhead(ctx, from, func(n int, _ *link.Message) bool {
			return n == PageSize && front == (Identity{}) && pages < maxKeptPages-1
		})
		if errors.Is(err, ErrPartitioned) { // it knows from now on
			page, err = dead.Peek(ctx, from, PageSize)
		}
		if err != nil || len(page) == 0 {
			return now, err
		}
		see(page)
		if len(page) < PageSize {
			return now, nil
		}
		if pages == 0 {
			if now = IdentityOf(page[0]); now == front {
				return now, nil
			}
		}
		from = dead.reached + 1
	}
	return now, nil
}
