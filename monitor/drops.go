// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"time"

	"overdue/monitor/metrics"

	"go.uber.org/zap"
)

// An entity without dead-lettering on expiry drops expired messages at the next receive of any
// client. The broker no longer delivers an expired message, so it cannot be saved. But the monitor
// does not cause the drop. It logs the setting to change, leaves the message alone and checks until
// it is gone. A scan keeps a deadline before the end of the time to live, as elsewhere.
//
// With the strategy native, the operator wants such messages dropped, with a notification, at once.

const (
	// The message is checked at growing intervals, from droppedWaitMin up to droppedWaitMax.
	droppedWaitMin = time.Second
	droppedWaitMax = 5 * time.Minute
	// lateCheck is the least time after the deadline at which a missing message may have been
	// dropped: before, hardly any client can have received.
	lateCheck = time.Second
)

// wouldBeDropped reports whether the message of wt must not be expired, since the broker would drop
// it. It logs the setting to change once.
func (e *entity) wouldBeDropped(wt *watch) bool {
	if !e.settings.drops || !wt.judgement.Native || e.settings.Strategy == strategyNative {
		if wt.attempt.left == spared {
			wt.attempt.left = nothing
		}
		return false
	}
	wt.attempt.left = spared
	warned := false
	e.w.states.update(e.key, func(f *entityState) { warned, f.warned = f.warned, true })
	if !warned {
		e.log.Warn("message expired unreceived, and its entity drops expired messages",
			zap.String("message_id", wt.ref.MessageID),
			zap.String("next", "set deadLetteringOnMessageExpiration on the entity, or state deadlines with overdue-within and no time to live"))
	}
	return true
}

// droppedWait returns when to check such a message again.
func (e *entity) droppedWait(wt *watch) time.Duration {
	late := e.w.clock.Now().Sub(wt.judgement.Deadline)
	return min(max(late/2, droppedWaitMin), droppedWaitMax)
}

// verdictWhenGone is the verdict about a message that is gone and in no dead-letter queue.
func (e *entity) verdictWhenGone(wt *watch) string {
	if wt.evidence.none || e.settings.drops && (wt.attempt.left == spared || e.w.clock.Now().Sub(wt.ref.Deadline) > lateCheck) {
		return metrics.Unknown
	}
	return metrics.Met
}
