// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"time"

	"overdue/alert"
	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/link"
)

const (
	deadLetterPage = 250   // messages of one peek, the most that Service Bus returns
	maxDeadLetters = 1_000 // that are counted
)

// missedReasons are the dead-letter reasons of messages that missed a deadline: the broker's own, and
// that of the strategies scan and session.
var missedReasons = map[string]bool{"TTLExpiredException": true, "DeadlineExceeded": true}

// deadLetters counts the dead letters of an entity by peeks without bodies.
func deadLetters(links *link.Namespace) func(ctx context.Context, entity, subscription string) (alert.DeadLetters, error) {
	return func(ctx context.Context, entity, subscription string) (d alert.DeadLetters, err error) {
		at, err := address.Name(entity)
		if err != nil { // it comes from the monitor queue
			return d, err
		}
		path := at.Name
		if subscription != "" {
			path = address.SubscriptionPath(at.Name, subscription)
		}
		p, err := links.Peeker(ctx, path+"/$DeadLetterQueue")
		if err != nil {
			return d, err
		}
		d.Time = time.Now()
		for from := int64(0); d.Count < maxDeadLetters; {
			page, err := p.Peek(ctx, from, deadLetterPage)
			if err != nil {
				return d, err // it has closed p
			}
			for _, m := range page {
				d.Count++
				if missedReasons[m.DeadLetterReason] {
					d.Missed++
				}
				from = max(from, m.SequenceNumber+1)
			}
			if len(page) == 0 {
				p.Close(ctx)
				return d, nil
			}
		}
		d.More = true
		p.Close(ctx)
		return d, nil
	}
}
