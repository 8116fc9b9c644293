// SPDX-License-Identifier: Apache-2.0

package search

import (
	"context"
	"errors"
	"time"

	"overdue/internal/servicebus/link"
)

// Between reads the messages that were enqueued in the window. It may read some twice, if it
// finds out late that the entity is partitioned.
func (v *View) Between(ctx context.Context, from, until time.Time, see func(*link.Message)) error {
	return v.betweenWhile(ctx, from, until, func(m *link.Message) (more bool) {
		see(m)
		return true
	})
}

// betweenWhile is Between until see wants no more. It may be called for some that follow.
func (v *View) betweenWhile(ctx context.Context, from, until time.Time, see func(*link.Message) (more bool)) error {
	more := true
	seeAll := func(page []*link.Message) bool {
		for _, m := range page {
			if !m.EnqueuedTime.Before(from) && !m.EnqueuedTime.After(until) {
				more = see(m)
			}
		}
		return more
	}
	if !v.Cursor {
		if err := v.betweenNumbers(ctx, from, until, seeAll); !errors.Is(err, ErrPartitioned) {
			return err
		}
	}
	return v.everywhere(ctx, seeAll)
}

// betweenNumbers is betweenWhile where sequence numbers are in the order of time.
func (v *View) betweenNumbers(ctx context.Context, from, until time.Time, see func(page []*link.Message) (more bool)) error {
	// Mostly the queue is short, or the window lies right behind what was read last: then one
	// page shows.
	var at int64
	marks, err := v.provenIndex(ctx)
	if err != nil {
		return err
	}
	if before, _, known, _ := marks.Around(from); known {
		at = before.Number + 1
	}
	more := true
	for first := true; ; first = false {
		page, err := v.peekAhead(ctx, at, func(_ int, last *link.Message) bool {
			return more && !last.EnqueuedTime.After(until) && (!first || !last.EnqueuedTime.Before(from))
		})
		if err != nil || len(page) == 0 {
			return err
		}
		last, next := page[len(page)-1], v.reached+1
		if first && last.EnqueuedTime.Before(from) {
			if at, _, err = v.seek(ctx, from, nil); err != nil {
				return err
			}
			at = max(at, next)
			continue
		}
		wanted := more
		more = see(page)
		if last.EnqueuedTime.After(until) || !wanted {
			return nil // no page is on its way
		}
		at = next
	}
}
