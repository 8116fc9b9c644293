// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"time"

	"go.uber.org/zap"

	"overdue/internal/servicebus/link"
	"overdue/monitor/intake"
	"overdue/monitor/metrics"
)

// An entity that does not exist has no messages, and a new one under its name has none of the
// old ones. But a namespace also answers not-found while an alias points elsewhere, or while an
// entity is being restored. Then the messages are still there. So their companions wait for a
// while.

const (
	// missingMost is for how long after its deadline a message is searched for while its
	// entity does not exist, and missingLeast for how long this process must have found that.
	missingMost  = time.Hour
	missingLeast = 5 * time.Minute
	// A missing entity is checked again after half of the time that it has been missing, within
	// these bounds.
	missingWaitMin = time.Second
	missingWaitMax = 2 * time.Minute
)

// entityMissing reports whether err says that the work queue does not exist.
func entityMissing(err error) bool { return link.Condition(err) == link.ConditionNotFound }

// noteMissing records whether e exists, by err, and logs a change.
func (e *entity) noteMissing(missing bool, err error) {
	since := e.w.states.get(e.key).missing
	switch {
	case missing && since.IsZero():
		e.w.states.update(e.key, func(f *entityState) { f.missing = time.Now() })
		e.log.Warn("work queue does not exist: its deadlines wait", zap.Error(err),
			zap.String("next", "create the queue again, or leave it: companions are given up an hour after their deadlines"))
	case err == nil && !since.IsZero():
		e.w.states.update(e.key, func(f *entityState) { f.missing = time.Time{} })
		e.log.Info("work queue exists again", zap.Duration("missing_for", time.Since(since)))
	}
}

// awaitEntity checks wt again later.
func (e *entity) awaitEntity(ctx context.Context, wt *watch) {
	wait := min(max(e.missingFor()/2, missingWaitMin), missingWaitMax)
	if e.w.crowded() {
		wait = max(wait, intake.CrowdedWait)
	}
	e.later(ctx, wt, wait)
}

func (e *entity) missingFor() time.Duration {
	if since := e.w.states.get(e.key).missing; !since.IsZero() {
		return time.Since(since)
	}
	return 0
}

// isGivenUp reports whether wt has waited long enough for its entity. A subscription that its topic
// does not list is deleted, with its messages.
func (e *entity) isGivenUp(wt *watch) bool {
	return e.settings.unlisted || e.missingFor() >= missingLeast && e.w.clock.Now().Sub(wt.due()) >= missingMost
}

// giveUp ends watches over messages whose entity is gone. Their verdict is unknown.
func (e *entity) giveUp(ctx context.Context, lost []*watch) {
	if len(lost) == 0 {
		return
	}
	say := e.log.Warn
	if e.settings.unlisted {
		say = e.log.Info
	}
	say("deadlines given up: their queue or subscription does not exist", zap.Int("messages", len(lost)), zap.Duration("missing_for", e.missingFor()))
	for _, wt := range lost {
		e.w.metrics.Verdict(e.name, metrics.Unknown)
		wt.companion.Done(ctx, nil)
	}
}
