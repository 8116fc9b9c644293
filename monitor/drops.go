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
// With the strategy native the operator wants it dropped, and told, at once.

const (
	// A doomed message is looked at ever more rarely, from doomedMin up to doomedMax.
	doomedMin = time.Second
	doomedMax = 5 * time.Minute
	// lateLook is how long after its deadline a message that is gone from an entity which drops may have been dropped
	// rather than received. Before that hardly anybody can have made a receive.
	lateLook = time.Second
)

// spares reports whether the message of wt must not be expired, since the broker would drop it.
func (e *entity) spares(wt *watch) bool {
	wt.doomed = e.traits.drops && wt.judgement.native && e.traits.Strategy != strategyNative
	if !wt.doomed {
		return false
	}
	warned := false
	e.w.facts.learn(e.key, func(f *fact) { warned, f.warned = f.warned, true })
	if !warned {
		e.log.Warn("a message has expired and nobody has received it, but this entity drops what expires",
			zap.String("message_id", wt.ref.MessageID),
			zap.String("next", "set its deadLetteringOnMessageExpiration: true, or state deadlines by overdue-within, without a time to live"))
	}
	return true
}

// doomedWait is when to look again at a message that nobody can save.
func (e *entity) doomedWait(wt *watch) time.Duration {
	late := e.w.clock.now().Sub(wt.judgement.deadline)
	return min(max(late/2, doomedMin), doomedMax)
}

// whenGone is the verdict about a message that is gone and in no dead-letter queue.
func (e *entity) whenGone(wt *watch) string {
	if e.traits.drops && (wt.doomed || e.w.clock.now().Sub(wt.ref.Deadline) > lateLook) {
		return verdictUnknown
	}
	return verdictMet
}
