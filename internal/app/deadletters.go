// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"time"

	"overdue/alert"
	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/link"
)

const (
	deadLetterPage = 250   // messages of one peek, the most that Service Bus returns
	maxDeadLetters = 1_000 // that are counted
)

// missedReasons are the dead-letter reasons of messages that missed a deadline: the broker's own, and
// that of the strategies scan and session.
var missedReasons = map[string]bool{"TTLExpiredException": true, "DeadlineExceeded": true}

// A letterCount counts the dead letters of an entity.
type letterCount func(ctx context.Context, entity, subscription string) (alert.DeadLetters, error)

// below is count for a topic, too: those of all its subscriptions. A topic has no dead letters of
// its own, and a peek there finds none, which is not to be taken for an empty queue.
func (count letterCount) below(describe func(ctx context.Context, name string) (entities.Info, error)) letterCount {
	return func(ctx context.Context, entity, subscription string) (all alert.DeadLetters, err error) {
		if subscription != "" {
			return count(ctx, entity, subscription)
		}
		info, unknown := describe(ctx, entity)
		switch {
		case unknown != nil:
			d, err := count(ctx, entity, "")
			if err == nil && d.Count == 0 {
				err = fmt.Errorf("it is not known whether %q is a topic: %w", entity, unknown)
			}
			return d, err
		case info.Kind != entities.Topic:
			return count(ctx, entity, "")
		case len(info.Subscriptions) == 0:
			return all, fmt.Errorf("the subscriptions of %q are not known", entity)
		}
		all.Time = time.Now()
		for i := range info.Subscriptions {
			if all.Count >= maxDeadLetters {
				all.More = true
				break
			}
			d, err := count(ctx, entity, info.Subscriptions[i].Name)
			if err != nil {
				return all, err
			}
			all.Count, all.Missed, all.More = all.Count+d.Count, all.Missed+d.Missed, all.More || d.More
			if d.Count > 0 {
				all.Subscriptions = append(all.Subscriptions, info.Subscriptions[i].Name)
			}
		}
		return all, nil
	}
}

// deadLetters counts the dead letters of an entity.
func deadLetters(links *link.Namespace) letterCount {
	return func(ctx context.Context, entity, subscription string) (d alert.DeadLetters, err error) {
		at, err := address.Name(entity)
		if err != nil { // it comes from the monitor queue
			return d, err
		}
		path := at.Name
		if subscription != "" {
			path = address.SubscriptionPath(at.Name, subscription)
		}
		return countMessages(ctx, links, path+deadLetterQueue, maxDeadLetters)
	}
}

const deadLetterQueue = "/$DeadLetterQueue"

// countMessages counts the messages of a queue by peeks without bodies, up to a number of them.
func countMessages(ctx context.Context, links *link.Namespace, path string, most int) (d alert.DeadLetters, err error) {
	p, err := links.Peeker(ctx, path)
	if err != nil {
		return d, err
	}
	d.Time = time.Now()
	for from := int64(0); d.Count < most; {
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
