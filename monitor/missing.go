// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"time"

	"go.uber.org/zap"

	"overdue/internal/servicebus/link"
)

// An entity that does not exist has no messages, and neither has one that was recreated under its name. But a namespace says
// not-found as well while an alias points elsewhere, or before an entity that is being restored is there: then
// the messages wait, and so do their companions, for a while.

const (
	// missingMost is for how long after its deadline a message is searched for where its entity does not exist, and missingLeast for
	// how long this process has to have found that, however late a companion comes.
	missingMost  = time.Hour
	missingLeast = 5 * time.Minute
	// An entity that does not exist is asked for again after half of the time for which it has not, within these bounds.
	missingWaitMin = time.Second
	missingWaitMax = 2 * time.Minute
)

// entityMissing: the broker says that the work queue does not exist.
func entityMissing(err error) bool { return link.Condition(err) == link.ConditionNotFound }

// noteMissing takes note of what a pass that ended with err says of whether e exists, and logs a change. Another failure says
// nothing.
func (e *entity) noteMissing(missing bool, err error) {
	since := e.w.states.get(e.key).missing
	switch {
	case missing && since.IsZero():
		e.w.states.update(e.key, func(f *entityState) { f.missing = time.Now() })
		e.log.Warn("work queue does not exist", zap.Error(err),
			zap.String("next", "companions wait for the queue, and are given up an hour after their deadlines"))
	case err == nil && !since.IsZero():
		e.w.states.update(e.key, func(f *entityState) { f.missing = time.Time{} })
		e.log.Info("work queue exists again", zap.Duration("missing_for", time.Since(since)))
	}
}

// awaitEntity checks wt again after a rest, which takes no room where others need it.
func (e *entity) awaitEntity(ctx context.Context, wt *watch) {
	wait := min(max(e.missingFor()/2, missingWaitMin), missingWaitMax)
	if e.w.crowded() {
		e.rewrite(ctx, wt, e.w.clock.now().Add(max(wait, crowdedWait)))
		return
	}
	e.later(ctx, wt, wait)
}

func (e *entity) missingFor() time.Duration {
	if since := e.w.states.get(e.key).missing; !since.IsZero() {
		return time.Since(since)
	}
	return 0
}

// isGivenUp reports whether wt has waited long enough for its entity, which does not exist. For a subscription that its topic does
// not have there is nothing to wait for: it has taken its messages along.
func (e *entity) isGivenUp(wt *watch) bool {
	return e.settings.unlisted || e.missingFor() >= missingLeast && e.w.clock.now().Sub(wt.due()) >= missingMost
}

// giveUp ends watches over messages that went with their entity, or never were: what became of them is unknown.
func (e *entity) giveUp(ctx context.Context, lost []*watch) {
	if len(lost) == 0 {
		return
	}
	say := e.log.Warn
	if e.settings.unlisted {
		say = e.log.Info
	}
	say("companions given up: work queue does not exist", zap.Int("messages", len(lost)), zap.Duration("missing_for", e.missingFor()))
	for _, wt := range lost {
		e.w.metrics.verdict(e.name, verdictUnknown)
		wt.companion.done(ctx, nil)
	}
}
