// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"time"

	"overdue/internal/broker/queue"
	"overdue/internal/broker/quirk"
)

// How the broker differs from the service, where Config.Quirks says so.

// shortPeek is the most messages of a peek, with quirk.PeekShort.
const shortPeek = 10

// shown is what a peek shows of what peek finds.
func shown(quirks quirk.Set, now time.Time, peek func(from int64, most int) ([]queue.View, error), from int64, most int) (shown []queue.View, err error) {
	if quirks.Has(quirk.PeekShort) {
		most = min(most, shortPeek)
	}
	if quirks&(quirk.PeekHidesExpired|quirk.PeekHidesLocked) == 0 {
		return peek(from, most)
	}
	for len(shown) < most {
		page, err := peek(from, most)
		if err != nil {
			return nil, err
		}
		for i := range page {
			if v := &page[i]; len(shown) < most && !hidden(quirks, v, now) {
				shown = append(shown, *v)
			}
			from = page[i].SequenceNumber + 1
		}
		if len(page) == 0 {
			break
		}
	}
	return shown, nil
}

// hidden reports whether a peek hides a message.
func hidden(quirks quirk.Set, v *queue.View, now time.Time) bool {
	expired := v.State == queue.Active && !v.Locked && !v.ExpiresAt.IsZero() && !v.ExpiresAt.After(now)
	return quirks.Has(quirk.PeekHidesExpired) && expired && v.DeadLetteredTime.IsZero() || quirks.Has(quirk.PeekHidesLocked) && v.Locked
}

// unschedule makes the messages of a batch active, with quirk.BatchUnscheduled.
func unschedule(messages []queue.Message) {
	for i := range messages {
		messages[i].ScheduledEnqueueTime = time.Time{}
	}
}

// cancelPartial removes those of the scheduled messages that there are, with quirk.CancelPartial.
func cancelPartial(q *queue.Queue, numbers []int64) response {
	for _, number := range numbers {
		if err := q.CancelScheduled(number); err != nil && !errors.Is(err, queue.ErrMessageNotFound) {
			return refused(errCancel(err))
		}
	}
	return ok(nil)
}
