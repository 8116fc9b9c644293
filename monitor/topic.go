// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"time"

	"overdue/internal/servicebus/address"

	"go.uber.org/zap"
)

const (
	// staleTopic is the least age at which the subscriptions of a topic are read again. An
	// older list is enough for messages that are older still: later subscriptions do not have
	// them.
	staleTopic = 5 * time.Second
	// maxSpread bounds the subscriptions that get the messages of one companion directly, and
	// maxWatching the watches in this worker at that time. Beyond that each subscription gets a
	// companion of its own: that is durable, and takes no memory.
	maxSpread   = 32
	maxWatching = 100_000
)

// asOf returns how old the description of e may be for a check of due, by our clock.
func (e *entity) asOf(due []*watch) time.Time {
	now, brokerNow := time.Now(), e.w.clock.Now()
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

// spreadToSubscriptions hands the watches of a topic to its subscriptions. Each subscription has a
// copy of its own, or none if its rules did not match. A copy that never existed cannot be
// distinguished from one that was received in time.
func (e *entity) spreadToSubscriptions(ctx context.Context, due []*watch) {
	subscriptions := e.settings.subscriptions
	for _, wt := range due {
		switch {
		case wt.state == stateMissed:
			e.w.notify(ctx, e.name, wt)
			continue
		case len(subscriptions) == 0:
			wt.companion.Done(ctx, nil)
			continue
		case len(subscriptions) > maxSpread || e.w.intake.Watching() > maxWatching:
			e.spreadByCompanions(ctx, wt)
			continue
		}
		wt.companion.Add(len(subscriptions) - 1)
		for _, name := range subscriptions {
			copied := &watch{ref: wt.ref, companion: wt.companion, next: time.Now(), hops: wt.hops}
			e.w.route(ctx, address.SubscriptionPath(e.name, name), copied)
		}
	}
	e.log.Debug("companions handed to subscriptions", zap.Int("messages", len(due)), zap.Int("subscriptions", len(subscriptions)))
}

// spreadByCompanions writes a companion for each subscription.
func (e *entity) spreadByCompanions(ctx context.Context, wt *watch) {
	wt.companion.Add(len(e.settings.subscriptions) - 1)
	now := e.w.clock.Now()
	for _, name := range e.settings.subscriptions {
		wt.companion.Done(ctx, wt.again(address.SubscriptionPath(e.name, name), now, wt.companion.Content.Attempt))
	}
}
