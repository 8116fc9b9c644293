// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"time"

	"overdue/scheduler"

	"go.uber.org/zap"
)

const (
	// staleTopic is how old the list of a topic's subscriptions may always be: it is not read more often. An older one
	// will do as well where it is younger than the messages: later subscriptions do not have them.
	staleTopic = 5 * time.Second
	// maxSpread bounds the subscriptions to which the messages of one companion are handed directly, and maxWatching the
	// watches in hand when they are. Beyond that each subscription gets a companion of its own: that is durable, and
	// takes no memory.
	maxSpread   = 32
	maxWatching = 100_000
)

// asOf is how old what is known of e may be for a pass over due, by our clock. The window of a message ends after it was
// enqueued, by the broker's clock.
func (e *entity) asOf(due []*watch) time.Time {
	now, brokerNow := time.Now(), e.w.clock.now()
	var since time.Time
	for _, wt := range due {
		if wt.ref.Until.IsZero() {
			return now.Add(-staleTopic)
		}
		if at := now.Add(wt.ref.Until.Sub(brokerNow)); at.After(since) {
			since = at
		}
	}
	if latest := now.Add(-staleTopic); since.After(latest) {
		return latest
	}
	return since
}

// spreadToSubscriptions hands the watches of a topic to its subscriptions. Each has a copy of the message, or has none because its
// rules did not take it, and each copy is a message of its own: with its number, its time to live, and its dead-letter
// queue. A copy that was never there looks like one that was received in time.
func (e *entity) spreadToSubscriptions(ctx context.Context, due []*watch) {
	subscriptions := e.settings.subscriptions
	for _, wt := range due {
		switch {
		case wt.missed != nil:
			e.w.notify(ctx, e.name, wt)
			continue
		case len(subscriptions) == 0:
			wt.companion.done(ctx, nil)
			continue
		case len(subscriptions) > maxSpread || e.w.watching.Load() > maxWatching:
			e.spreadByCompanions(ctx, wt)
			continue
		}
		wt.companion.add(len(subscriptions) - 1)
		for _, name := range subscriptions {
			copied := &watch{ref: wt.ref, companion: wt.companion, since: wt.since, next: time.Now(), hops: wt.hops}
			e.w.route(ctx, subscriptionPath(e.name, name), copied)
		}
	}
	e.log.Debug("companions handed to subscriptions", zap.Int("messages", len(due)), zap.Int("subscriptions", len(subscriptions)))
}

// spreadByCompanions has a companion written for each subscription.
func (e *entity) spreadByCompanions(ctx context.Context, wt *watch) {
	wt.companion.add(len(e.settings.subscriptions) - 1)
	now := e.w.clock.now()
	for _, name := range e.settings.subscriptions {
		wt.companion.done(ctx, &scheduler.Companion{
			Kind: scheduler.KindEach, Entity: subscriptionPath(e.name, name), Due: now,
			References: []scheduler.Reference{wt.ref}, Attempt: wt.companion.content.Attempt,
		})
	}
}
