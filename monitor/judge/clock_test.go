// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"testing"
	"testing/synctest"
	"time"

	"overdue/monitor/search"
	"overdue/scheduler"
)

// The clock is never ahead of the broker's, whichever of the two machines is faster, and a wait by
// it is long enough.
func TestTheClockIsALowerBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Clock{Measured: func() scheduler.Instant { return scheduler.Instant{} }}
		stamp := time.Now().Add(-time.Hour) // the broker's clock is an hour behind ours
		c.Observe(stamp)
		c.Observe(stamp.Add(-time.Second)) // a companion that took long to arrive
		time.Sleep(time.Hour)
		if behind := stamp.Add(time.Hour).Sub(c.Now()); behind < 0 || behind > time.Second {
			t.Errorf("after an hour the clock is %v behind, want up to a second", behind)
		}
		due := c.Now().Add(time.Minute)
		time.Sleep(c.Until(due))
		if c.Now().Before(due) {
			t.Errorf("at %v after the wait, want %v", c.Now(), due)
		}
		if _, known := c.NotAfter(); known || !c.Latest().Equal(c.Now()) {
			t.Error("without a measurement the clock knows an upper bound, or another lower one")
		}
	})
}

// A measurement bounds the clock from above, unless a stamp contradicts it.
func TestAMeasurementBoundsTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		measured := scheduler.Instant{Time: time.Now(), Uncertainty: 20 * time.Millisecond, Measured: true}
		c := &Clock{Measured: func() scheduler.Instant { return measured }}
		c.Observe(time.Now().Add(-time.Minute))
		if at := c.Latest(); !at.Equal(measured.Time.Add(-measured.Uncertainty)) {
			t.Errorf("latest is %v, want %v", at, measured.Time.Add(-measured.Uncertainty))
		}
		if now, known := c.NotAfter(); !known || !now.Equal(measured.Time.Add(measured.Uncertainty)) {
			t.Errorf("not after %v, known %v, want %v", now, known, measured.Time.Add(measured.Uncertainty))
		}
		c.Observe(time.Now().Add(time.Second))
		if _, known := c.NotAfter(); known {
			t.Error("an upper bound is known although a stamp contradicts it")
		}
		if c.Grain() != search.StampPrecision {
			t.Errorf("grain %v, want %v", c.Grain(), search.StampPrecision)
		}
		if measured.Grain = time.Second; c.Grain() != time.Second {
			t.Errorf("grain %v, want that of the measurement", c.Grain())
		}
	})
}

// A lock shows the time by the broker's clock. Where that was set back, so is this one.
func TestALockShowsThatADeadlineIsStillToCome(t *testing.T) {
	const lock = time.Minute
	deadline := noon
	for _, c := range []struct {
		name   string
		locked time.Duration // after the deadline
		lock   time.Duration
		early  bool
		back   time.Duration // where the clock is then, after the deadline
	}{
		{"after the deadline", time.Second, lock, false, 10 * time.Second},
		{"before it", -time.Second, lock, true, -time.Second},
		{"in the grain of it", 0, lock, true, 0},
		{"right behind the grain", search.StampPrecision, lock, false, 10 * time.Second},
		{"long before it", -time.Hour, lock, true, -maxEarly},
		{"with an unknown lock", -time.Second, 0, false, 10 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			clock := &Clock{Measured: func() scheduler.Instant { return scheduler.Instant{} }}
			clock.Observe(deadline.Add(10 * time.Second))
			early := clock.IsEarly(deadline, deadline.Add(c.locked+lock), c.lock)
			if at := clock.Now().Sub(deadline); early != c.early || at != c.back {
				t.Errorf("locked %s: early %v, and the clock is at %v, want %v, and %v", c.name, early, at, c.early, c.back)
			}
		})
	}
}
