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

// The locks that Service Bus can make: an entity without the right Manage has one of these.
const (
	shortestLock = 5 * time.Second
	longestLock  = 5 * time.Minute
)

// lockState is how long dead letters of a place are locked for whoever takes one; 0 where that is not known.
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

// hold is how long a dead letter may be kept, some way below its lock.
func (l lockState) hold() time.Duration { return max(l.Duration, shortestLock) * 2 / 3 }

// left is the error of dead letters that are locked; nil without any.
func (l lockState) left(locked []int64) error {
	if len(locked) == 0 {
		return nil
	}
	lapse := l.Duration
	if lapse <= 0 {
		lapse = longestLock
	}
	return fmt.Errorf("%d are locked, by somebody else or by a run that was killed, and were left: %s; run it again when their locks have lapsed, in %s at most",
		len(locked), numbers(locked), lapse)
}
