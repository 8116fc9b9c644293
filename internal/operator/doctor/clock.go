// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"time"

	"overdue/scheduler"
)

// MeasureClock measures how far the broker's clock is ahead of ours, and how wrong that can be. It needs the same
// settings as the scheduler of a process.
func MeasureClock(ctx context.Context, cfg scheduler.Config) (ahead, uncertainty time.Duration, err error) {
	s, err := scheduler.New(cfg)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = s.Close(context.WithoutCancel(ctx)) }() // it has nothing in flight
	if err := s.MeasureClock(ctx); err != nil {
		return 0, 0, err
	}
	now := s.Now()
	return time.Until(now.Time), now.Uncertainty, nil
}
