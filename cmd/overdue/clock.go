// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"
)

const (
	clockInterval = 5 * time.Minute
	clockTimeout  = 30 * time.Second
)

// keepClock measures the broker's clock at once and every five minutes, a little early
// or late so that sidecars which started together do not ask together. Until a
// measurement succeeds, deadlines are reckoned on this machine's clock.
func keepClock(ctx context.Context, measure func(context.Context) error, log *zap.Logger) error {
	wait := newBackOff(time.Second, clockInterval)
	for warned := false; ; {
		trial, cancel := context.WithTimeout(ctx, clockTimeout)
		err := measure(trial)
		cancel()
		if ctx.Err() != nil {
			return nil
		}
		next := time.Duration(float64(clockInterval) * (0.9 + 0.2*rand.Float64()))
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
			log.Warn("broker clock not measured", zap.Error(err))
			next = wait.NextBackOff()
		default:
			log.Debug("broker clock not measured", zap.Error(err))
			next = wait.NextBackOff()
		}
		select {
		case <-time.After(next):
		case <-ctx.Done():
			return nil
		}
	}
}
