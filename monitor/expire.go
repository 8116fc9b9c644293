// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"time"
)

const (
	// A message that could not be expired is in flight, or out of reach. Its expiry is
	// tried again at once when its delivery count shows that it came back, and otherwise
	// after climbMin, doubling up to climbMax: every try may disturb live messages for
	// a moment.
	climbMin = 2 * time.Second
	climbMax = time.Minute
)

// Strategies, as they are configured and as events name them. Any other means auto: both, in
// this order.
const (
	strategyNative = "native"
	strategyScan   = "scan"
)

// expire takes overdue messages off the work queue. It climbs: nudge, look, scan, look.
// Afterwards the verdict of each watch is Gone or InFlight, and missed is set on those
// that were dead-lettered by hand.
func (e *entity) expire(ctx context.Context, overdue []*watch) error {
	if len(overdue) == 0 {
		return nil
	}
	var try []*watch
	for _, wt := range overdue {
		if wt.mayClimb(time.Now()) {
			try = append(try, wt)
		} else {
			wt.judgement.verdict = InFlight
		}
	}
	left := try
	if e.settings.Strategy != strategyScan && anyNative(left) {
		if err := e.nudge(ctx); err != nil {
			return err
		}
		if err := e.lookAgain(ctx, left); err != nil {
			return err
		}
		left = present(left)
	}
	if e.settings.Strategy != strategyNative && len(left) > 0 {
		if err := e.scan(ctx, left); err != nil {
			return err
		}
		left = unaccounted(left)
		if err := e.lookAgain(ctx, left); err != nil {
			return err
		}
	}
	for _, wt := range present(left) {
		wt.judgement.verdict = InFlight
		wt.triedToClimb(time.Now())
	}
	return nil
}

// mayClimb reports whether to try to expire the message of wt now.
func (wt *watch) mayClimb(now time.Time) bool {
	if wt.climbed.IsZero() || wt.want.found.DeliveryCount != wt.climbCount {
		return true
	}
	return !now.Before(wt.climbed.Add(wt.climbDelay))
}

func (wt *watch) triedToClimb(now time.Time) {
	if wt.climbed.IsZero() || wt.want.found.DeliveryCount != wt.climbCount {
		wt.climbDelay = climbMin
	} else {
		wt.climbDelay = min(wt.climbDelay*2, climbMax)
	}
	wt.climbed, wt.climbCount = now, wt.want.found.DeliveryCount
}

// lookAgain sets the verdict of the watches whose messages have gone meanwhile.
func (e *entity) lookAgain(ctx context.Context, watches []*watch) error {
	if len(watches) == 0 {
		return nil
	}
	before := make([]want, len(watches))
	for i, wt := range watches {
		before[i] = wt.want
	}
	err := e.look(ctx, watches)
	for i, wt := range watches {
		if wt.want.found == nil {
			wt.judgement.verdict = Gone
			wt.want.found = before[i].found // as it was last seen
		}
	}
	return err
}

func anyNative(watches []*watch) bool {
	for _, wt := range watches {
		if wt.judgement.native {
			return true
		}
	}
	return false
}

// present are the watches whose messages are still on the work queue.
func present(watches []*watch) []*watch {
	return filter(watches, func(wt *watch) bool { return wt.judgement.verdict != Gone })
}

// unaccounted are those that a scan has not dead-lettered.
func unaccounted(watches []*watch) []*watch {
	return filter(watches, func(wt *watch) bool { return wt.missed == nil })
}

func filter(watches []*watch, keep func(*watch) bool) []*watch {
	var kept []*watch
	for _, wt := range watches {
		if keep(wt) {
			kept = append(kept, wt)
		}
	}
	return kept
}
