// SPDX-License-Identifier: Apache-2.0

package messages

import (
	"context"
	"fmt"
	"strings"
	"time"

	"overdue/internal/operator"
	"overdue/internal/operator/dlq"
)

// longestLock is the longest lock that Service Bus allows.
const longestLock = 5 * time.Minute

// A lockState is the lock duration of the dead letters of a place; 0 if it is not known.
type lockState struct{ time.Duration }

func lockOf(ctx context.Context, conn *operator.Connection, place dlq.Place) lockState {
	ctx, cancel := context.WithTimeout(ctx, operator.Timeout)
	defer cancel()
	info, err := conn.Read(ctx, place.Entity)
	if err != nil {
		return lockState{}
	}
	for _, s := range info.Subscriptions {
		if strings.EqualFold(s.Name, place.Subscription) {
			return lockState{s.LockDuration}
		}
	}
	return lockState{info.LockDuration}
}

// hold is how long a dead letter may be kept, well below its lock duration.
func (l lockState) hold() time.Duration { return dlq.Hold(l.Duration) }

// lockedError returns the error of dead letters that are locked, or nil if there are none.
func (l lockState) lockedError(locked []int64) error {
	if len(locked) == 0 {
		return nil
	}
	lapse := l.Duration
	if lapse <= 0 {
		lapse = longestLock
	}
	return fmt.Errorf("%d are locked, by another client or by a run that was killed, and were left: %s; run it again when their locks have lapsed, in %s at most",
		len(locked), numbers(locked), lapse)
}
