// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"
)

const (
	clockInterval = 5 * time.Minute
	clockTimeout  = 30 * time.Second
	// clockIntervalAlone is clockInterval where no companion brings a stamp of the broker along: what is known of its clock
	// gets blurred by 200 µs a second.
	clockIntervalAlone = 30 * time.Second
)

// keepClock measures the broker's clock whenever the namespace has been attached, when that is
// wanted, and at an interval. The interval is a little shorter or longer each time, so that
// sidecars which started together do not ask together. Until a measurement succeeds, deadlines are
// calculated on this machine's clock. It does not measure at the start: before the namespace is
// attached that would fail, and the first sends would go by this machine's clock.
func keepClock(ctx context.Context, attached, wanted <-chan struct{}, measure func(context.Context) error, every time.Duration, log *zap.Logger) error {
	wait := newBackOff(time.Second, every)
	warned := false
	var due <-chan time.Time // nil until there is a namespace to ask
	for {
		select {
		case <-attached:
			wait.Reset()
		case <-wanted:
		case <-due:
		case <-ctx.Done():
			return nil
		}
		trial, cancel := context.WithTimeout(ctx, clockTimeout)
		err := measure(trial)
		cancel()
		if ctx.Err() != nil {
			return nil
		}
		next := time.Duration(float64(every) * (0.9 + 0.2*rand.Float64()))
		switch {
		case err == nil:
			if warned {
				log.Info("broker clock measured again")
			}
			warned = false
			wait.Reset()
		case !warned:
			// One warning for a failure that lasts. It may last for good: without the right
			// to listen on the monitor queue the clock cannot be measured.
			warned = true
			log.Warn("broker clock not measured", zap.String("error", plainly(err)))
			next = wait.NextBackOff()
		default:
			log.Debug("broker clock not measured", zap.Error(err))
			next = wait.NextBackOff()
		}
		due = time.After(next)
	}
}
