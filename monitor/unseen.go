// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"overdue/monitor/judge"
)

// A message counts as gone when no peek shows it. That rests on two statements of Service Bus, and
// the monitor relies on neither before it has seen it hold.
//
// A peek shows expired messages, as "Message browsing" states. Until one has done so, a message
// that no peek shows may still be there, expired and not moved yet. So a nudge comes before its
// absence counts.
//
// A peek shows locked messages, as the same page states. The worker tries it on a companion that it
// has locked (package intake). If it does not, a message that is gone is checked again until the
// lock of a consumer may have lapsed.

// noteShown records that peeks show expired messages, once a nudge has expired one of these, which
// a peek had shown after its time to live.
func (e *entity) noteShown(nudged []*watch) {
	for _, wt := range nudged {
		if wt.evidence.shownExpired && (wt.state == stateMissed || wt.evidence.expired != nil) {
			e.w.showsExpired.Store(true)
		}
	}
}

// unseenMost bounds the nudges for one message that no peek shows. A consumer that holds its
// session expires it as well.
const unseenMost = 2

// expireUnseen nudges for those of the messages that may have expired, of which neither the work
// queue nor the dead-letter queue shows any. It reports whether it has.
func (e *entity) expireUnseen(ctx context.Context, nowhere []*watch) (tried bool, err error) {
	if e.w.showsExpired.Load() || e.settings.drops || e.settings.topic {
		return false, nil
	}
	now := e.w.clock.Latest()
	unseen := filter(nowhere, func(wt *watch) bool { return !wt.due().After(now) && wt.evidence.awaited < unseenMost })
	for scopes := range slices.Chunk(e.scopes(unseen), maxScopes) {
		err := e.nudge(ctx, scopes)
		if unanswered := errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil; unanswered {
			e.w.showsExpired.Store(true) // to find out takes too long here
		} else if err != nil {
			return false, err
		}
	}
	return len(unseen) > 0, nil
}

// mayBeUnseen reports whether the message of wt, which is gone, may be on the work queue unseen:
// the last nudge for it could not be made.
func (e *entity) mayBeUnseen(wt *watch) bool {
	return !e.w.showsExpired.Load() && wt.attempt.left == refused && wt.evidence.awaited < unseenMost
}

// renewedFor is how long the SDKs renew a lock, unless they are configured otherwise.
const renewedFor = 5 * time.Minute

// lockMost is how long the lock on a message of e lasts at most.
func (e *entity) lockMost() time.Duration { return cmp.Or(e.settings.lock, judge.LongestLock) }

// mayBeHeld reports whether a consumer may hold the message of wt, which no peek shows then.
func (e *entity) mayBeHeld(wt *watch) bool {
	return e.w.intake.HidesLocked() && e.w.clock.Now().Before(wt.due().Add(e.lockMost()+renewedFor))
}
