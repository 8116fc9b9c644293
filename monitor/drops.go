// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"time"

	"go.uber.org/zap"
)

// An entity that does not dead-letter what expires drops it, with the first receive after that, whoever makes it. What
// has expired there cannot be saved: the broker does not deliver it any more. But the monitor is not the one who has it
// dropped. It says what to set, leaves such a message alone and looks until it is gone. A deadline that comes before the
// time-to-live is kept as anywhere else, by a scan.
//
// With the strategy native the operator wants it dropped, and notified, at once.

const (
	// A doomed message is checked ever more rarely, from doomedMin up to doomedMax.
	droppedWaitMin = time.Second
	droppedWaitMax = 5 * time.Minute
	// lateCheck is how long after its deadline a message that is gone from an entity which drops may have been dropped
	// rather than received. Before that hardly anybody can have made a receive.
	lateCheck = time.Second
)

// wouldBeDropped reports whether the message of wt must not be expired, since the broker would drop it.
func (e *entity) wouldBeDropped(wt *watch) bool {
	wt.willBeDropped = e.settings.drops && wt.judgement.native && e.settings.Strategy != strategyNative
	if !wt.willBeDropped {
		return false
	}
	warned := false
	e.w.states.update(e.key, func(f *entityState) { warned, f.warned = f.warned, true })
	if !warned {
		e.log.Warn("message expired unreceived, and its entity drops expired messages",
			zap.String("message_id", wt.ref.MessageID),
			zap.String("next", "set deadLetteringOnMessageExpiration on the entity, or state deadlines with overdue-within and no time to live"))
	}
	return true
}

// droppedWait is when to check again at a message that nobody can save.
func (e *entity) droppedWait(wt *watch) time.Duration {
	late := e.w.clock.now().Sub(wt.judgement.deadline)
	return min(max(late/2, droppedWaitMin), droppedWaitMax)
}

// verdictWhenGone is the verdict about a message that is gone and in no dead-letter queue.
func (e *entity) verdictWhenGone(wt *watch) string {
	if e.settings.drops && (wt.willBeDropped || e.w.clock.now().Sub(wt.ref.Deadline) > lateCheck) {
		return verdictUnknown
	}
	return verdictMet
}
