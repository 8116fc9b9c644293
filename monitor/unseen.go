// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"errors"
	"slices"
)

// A message counts as gone when no peek shows it. That rests on two statements of Service Bus. The
// monitor does not rely on the first one before it has seen it hold.
//
// A peek shows expired messages, as "Message browsing" states. Until one has done so, a message
// that no peek shows may still be there, expired and not moved yet. So a nudge comes before its
// absence counts.
//
// A peek shows locked messages, as the same page states. `overdue verify` tries that.

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
