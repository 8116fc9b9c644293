// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"time"

	"overdue/monitor/metrics"

	"go.uber.org/zap"
)

// maxHops bounds how often a forwarded message is followed. Service Bus forwards it no more
// often ("Overview of Service Bus dead-letter queues", maximum transfer hop count). It also
// ends a cycle.
const maxHops = 5

// follow searches for the message of wt at the destination of e: the message has left e and did not
// expire there. At the destination it is a new message, with a new stamp, and its time to live
// starts again.
//
// It is searched for in the window of its send. If the destination was full or disabled for a
// while, it was enqueued later and is not found.
func (e *entity) follow(ctx context.Context, wt *watch) {
	if wt.hops == maxHops {
		e.log.Warn("message forwarded too often: its deadline is no longer watched", zap.String("message_id", wt.ref.MessageID), zap.Int("forwards", maxHops), zap.String("next", "check forwardTo of the entities for a cycle"))
		e.w.metrics.Verdict(e.name, metrics.Unknown)
		wt.companion.Done(ctx, nil)
		return
	}
	ref := wt.ref
	ref.Warned, ref.Incomplete = 0, false
	next := &watch{ref: ref, companion: wt.companion, next: time.Now(), hops: wt.hops + 1}
	e.w.route(ctx, e.settings.forwardTo, next)
}
