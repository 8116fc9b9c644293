// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"time"

	"go.uber.org/zap"
)

// maxHops is how often a message is followed to where it was forwarded: Service Bus forwards it no more often
// ("Overview of Service Bus dead-letter queues", maximum transfer hop count). It also ends a circle.
const maxHops = 5

// follow goes on looking for the message of wt where e forwards to: it has left e, and did not expire here. There it is
// a new message, with stamps and a time to live that begin anew.
//
// It is searched for in the window of its send. One that was held up on its way, because what it was forwarded to was
// full or disabled, is enqueued later than that and not found.
func (e *entity) follow(ctx context.Context, wt *watch) {
	if wt.hops == maxHops {
		e.log.Warn("message forwarded too often, no longer followed", zap.String("message_id", wt.ref.MessageID))
		e.w.metrics.verdict(e.name, verdictUnknown)
		wt.companion.done(ctx, nil)
		return
	}
	ref := wt.ref
	ref.Warned, ref.Incomplete = 0, false
	next := &watch{ref: ref, companion: wt.companion, since: wt.since, next: time.Now(), hops: wt.hops + 1}
	e.w.route(ctx, e.settings.forwardTo, next)
}
