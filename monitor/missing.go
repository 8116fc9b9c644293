// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"errors"
	"time"

	"overdue/internal/servicebus/link"
	"overdue/monitor/intake"

	"go.uber.org/zap"
)

// An entity that does not exist has no messages, and a new one under its name has none of the
// old ones. But a namespace also answers not-found while an alias points elsewhere, or while an
// entity is being restored. Then the messages are still there. So their companions wait for a
// while.

// missingMost is for how long after its deadline a message is searched for while its entity does
// not exist. This process must have found that for waitMax.
const missingMost = time.Hour

// retryAfter returns how long to wait after an error. All that need a lost connection try again at
// the same interval, and one dial serves them.
func retryAfter(err error) time.Duration {
	if link.Lost(err) {
		return intake.ReconnectEvery
	}
	return checkMax
}

// logFailed logs a failure at an entity. A lost connection is logged once, by the worker.
func logFailed(log *zap.Logger, event string, err error, fields ...zap.Field) {
	say := log.Warn
	if errors.Is(err, link.ErrNoConnection) {
		say = log.Debug
	}
	say(event, append(fields, zap.Error(err))...)
}

// noteConnection logs that the connection to the namespace is lost, or is back.
func (w *Worker) noteConnection(err error) {
	isDown := errors.Is(err, link.ErrNoConnection)
	w.mu.Lock()
	hasChanged := (isDown || err == nil) && w.isDown != isDown
	if hasChanged {
		w.isDown = isDown
	}
	w.mu.Unlock()
	switch {
	case hasChanged && isDown:
		w.log.Warn("connection to the namespace lost", zap.Error(err), zap.Duration("retry_every", intake.ReconnectEvery))
	case hasChanged:
		w.log.Info("connection to the namespace restored")
	}
}

// noteOutcome records what the error of a check of some messages says of the connection and of the
// entity. It reports whether the entity does not exist.
func (e *entity) noteOutcome(ctx context.Context, err error, messages int) (isMissing bool) {
	isMissing = link.Condition(err) == link.ConditionNotFound
	e.w.noteConnection(err)
	switch {
	case isMissing && e.missingSince.IsZero():
		e.missingSince = time.Now()
		e.log.Warn("work queue does not exist: its deadlines wait", zap.Error(err),
			zap.String("next", "create the queue again, or leave it: companions are given up an hour after their deadlines"))
		e.forget("not-found")
	case err == nil && !e.missingSince.IsZero():
		e.log.Info("work queue exists again", zap.Duration("missing_for", time.Since(e.missingSince)))
		e.missingSince = time.Time{}
	case err != nil && !isMissing:
		logFailed(e.log, "check failed", err, zap.Int("messages", messages))
		e.backlog.Reset() // what was taken from it was not watched
		e.closeLinks(ctx)
	}
	return isMissing
}

// missingWait returns when to check again whether an entity exists that was missing since then.
// Where the worker has no room, companions do not wait in hand.
func (w *Worker) missingWait(since time.Time) time.Duration {
	return w.roomyWait(growing(time.Since(since), waitMax))
}

// roomyWait returns wait, or so long that companions do not wait in hand where there is no room.
func (w *Worker) roomyWait(wait time.Duration) time.Duration {
	if w.intake.IsCrowded() {
		return max(wait, intake.CrowdedWait)
	}
	return wait
}

// isGivenUp reports whether a message that was due at an instant of the clock of the broker has
// waited long enough for its entity. A subscription that its topic does not list is deleted, with
// its messages.
func (e *entity) isGivenUp(due time.Time) bool {
	if !e.settings.unlisted && (time.Since(e.missingSince) < waitMax || e.w.clock.Now().Sub(due) < missingMost) {
		return false
	}
	say := e.log.Warn
	if e.settings.unlisted {
		say = e.log.Info
	}
	say("deadline given up: its queue or subscription does not exist", zap.Time("deadline", due), zap.Duration("missing_for", time.Since(e.missingSince)))
	return true
}
