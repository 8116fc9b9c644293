// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/testing/testseed"
)

func TestClockThatWasNeverMeasuredIsOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock()
		if got := c.Now(); got.Measured || !got.Time.Equal(time.Now()) {
			t.Errorf("now = %+v, want our own clock, not measured", got)
		}
	})
}

// The broker's true time has to lie within the uncertainty, whatever the offset, the
// round trips and the drift between measurements.
func TestTrueTimeLiesWithinTheUncertainty(t *testing.T) {
	seed := testseed.Of(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	synctest.Test(t, func(t *testing.T) {
		for range 200 {
			offset := time.Duration(rng.Int64N(int64(20*time.Minute))) - 10*time.Minute
			ppm := float64(rng.IntN(200)-100) / 1e6 // the broker's clock is this much faster
			start := time.Now()
			broker := func() time.Time {
				return time.Now().Add(offset + time.Duration(float64(time.Since(start))*ppm))
			}
			c := newClock()
			for range 10 {
				sent := time.Now()
				time.Sleep(time.Duration(rng.Int64N(int64(50 * time.Millisecond))))
				stamp := broker().Truncate(time.Millisecond)
				time.Sleep(time.Duration(rng.Int64N(int64(50 * time.Millisecond))))
				c.setClock(stamp, time.Millisecond, sent, time.Now())
				time.Sleep(time.Duration(rng.Int64N(int64(10 * time.Minute))))
				got := c.Now()
				if off := got.Time.Sub(broker()).Abs(); !got.Measured || off > got.Uncertainty {
					t.Fatalf("off by %v with an uncertainty of %v", off, got.Uncertainty)
				}
			}
		}
	})
}

func TestBlurredMeasurementDoesNotReplaceASharpOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock()
		time.Sleep(time.Millisecond) // not a whole second
		now := time.Now()
		c.setClock(now, time.Millisecond, now, now.Add(2*time.Millisecond))
		time.Sleep(time.Second)
		sharp := c.Now().Uncertainty
		c.setClock(time.Now().Add(-time.Second), time.Millisecond, time.Now().Add(-2*time.Second), time.Now())
		if got := c.Now().Uncertainty; got > sharp {
			t.Errorf("uncertainty is %v after a blurred measurement, want still %v", got, sharp)
		}
	})
}

// A clock was set since the last measurement, so that sharper one is wrong.
func TestAMeasurementThatContradictsASharperOneReplacesIt(t *testing.T) {
	for _, step := range []time.Duration{-time.Minute, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			c := newClock()
			c.setClock(time.Now(), time.Millisecond, time.Now(), time.Now().Add(2*time.Millisecond))
			time.Sleep(time.Second)
			sent := time.Now()
			time.Sleep(100 * time.Millisecond)
			c.setClock(sent.Add(step), time.Millisecond, sent, time.Now())
			if off := c.Now().Time.Sub(time.Now().Add(step)).Abs(); off > c.Now().Uncertainty {
				t.Errorf("off by %v after a step of %v, with an uncertainty of %v", off, step, c.Now().Uncertainty)
			}
		})
	}
}

// While a machine is suspended, its monotonic clock stands still.
func TestNothingIsKnownAfterASuspension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newClock()
		now := time.Now()
		s.setClock(now, time.Millisecond, now, now.Add(2*time.Millisecond))
		time.Sleep(time.Minute)
		s.wall = s.wall.Add(-time.Second)
		if !s.Now().Measured || len(s.blurred) > 0 {
			t.Errorf("Now = %+v while the clocks part little, want the measurement", s.Now())
		}
		s.wall = s.wall.Add(-10 * time.Minute)
		if got := s.Now(); got.Measured || len(s.blurred) == 0 {
			t.Errorf("Now = %+v after ten minutes, want that nothing is known and a measurement is due", got)
		}
		sent := time.Now()
		s.setClock(sent.Add(time.Hour), time.Millisecond, sent, sent.Add(time.Second)) // less sharp than the last
		if got := s.Now(); !got.Measured || got.Time.Sub(sent) < 59*time.Minute {
			t.Errorf("Now = %+v after a measurement, want it", got)
		}
	})
}
