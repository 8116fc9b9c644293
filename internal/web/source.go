// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"time"

	"overdue/internal/history"
	"overdue/internal/redisstore"
	"overdue/monitor/mute"
)

// A Record is what outlives the process or is shared with others. Any field may be nil: then the
// pages say that they show this process alone, or leave the part out.
type Record struct {
	// Fleet reads the reports of all processes that share a Redis; nil without one.
	Fleet func(context.Context) (redisstore.Fleet, error)
	// Counts and Unknown are those of [history.History].
	Counts  func(now time.Time) (today, ever history.Verdicts, since time.Time)
	Unknown func(ctx context.Context, limit int) (latest []history.Unknown, scope string)
	// Mutes are those in force.
	Mutes func(context.Context) ([]mute.Mute, error)
}
