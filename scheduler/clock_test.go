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
		var c clock
		if got := c.now(); got.Measured || !got.Time.Equal(time.Now()) {
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
			var c clock
			for range 10 {
				sent := time.Now()
				time.Sleep(time.Duration(rng.Int64N(int64(50 * time.Millisecond))))
				stamp := broker().Truncate(time.Millisecond)
				time.Sleep(time.Duration(rng.Int64N(int64(50 * time.Millisecond))))
				c.set(stamp, sent, time.Now())
				time.Sleep(time.Duration(rng.Int64N(int64(10 * time.Minute))))
				got := c.now()
				if off := got.Time.Sub(broker()).Abs(); !got.Measured || off > got.Uncertainty {
					t.Fatalf("off by %v with an uncertainty of %v", off, got.Uncertainty)
				}
			}
		}
	})
}

func TestBlurredMeasurementDoesNotReplaceASharpOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c clock
		now := time.Now()
		c.set(now, now, now.Add(2*time.Millisecond))
		time.Sleep(time.Second)
		sharp := c.now().Uncertainty
		c.set(time.Now().Add(-time.Second), time.Now().Add(-2*time.Second), time.Now())
		if got := c.now().Uncertainty; got > sharp {
			t.Errorf("uncertainty is %v after a blurred measurement, want still %v", got, sharp)
		}
	})
}
