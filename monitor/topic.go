// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"

	"overdue/internal/servicebus/address"

	"go.uber.org/zap"
)

// spread hands the rules of a topic to its subscriptions. Each subscription has a
// copy of its own of a message, or none if its filters did not match. A copy that never existed
// cannot be distinguished from one that was received in time. Where the worker has too many
// watches, each subscription gets a companion of its own: that is durable, and takes no memory.
func (w *Worker) spread(ctx context.Context, topic string, subscriptions []string, rules []*rule) {
	for _, rl := range rules {
		c := rl.companion
		if len(subscriptions) == 0 {
			c.Done(ctx, nil)
			continue
		}
		c.Add(len(subscriptions) - 1)
		direct := w.intake.Watching()+int64(len(subscriptions)) <= maxWatches
		for _, name := range subscriptions {
			path := address.SubscriptionPath(topic, name)
			if !direct {
				c.Done(ctx, rl.againAt(path, w.clock.Now()))
				continue
			}
			copied := newRule(c, rl.ref, nil)
			copied.hops = rl.hops
			w.route(ctx, path, copied)
		}
	}
	w.log.Debug("companions handed to subscriptions", zap.String("work_queue", topic), zap.Int("messages", len(rules)), zap.Int("subscriptions", len(subscriptions)))
}
