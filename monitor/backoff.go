// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"errors"
	"time"

	"go.uber.org/zap"

	"overdue/internal/servicebus/link"
	"overdue/monitor/intake"
)

// There are two kinds of failure, each with a delay of its own. A lost connection is one state of
// the worker: all that need it try again at the same interval, however long it lasts, and one dial
// serves them (package link). A failed check has no effect on others: each of its watches waits
// longer each time.

const (
	// A failed check is repeated after retryMin, doubling up to retryMax.
	retryMin = 100 * time.Millisecond
	retryMax = 10 * time.Second
)

// retryAfter returns how long wt waits after its check failed with err.
func (w *Worker) retryAfter(wt *watch, err error) time.Duration {
	if link.Lost(err) {
		return intake.ReconnectEvery
	}
	wt.failures++
	return min(retryMin<<min(wt.failures-1, 10), retryMax)
}

// logFailed logs a failure at an entity. A lost connection is logged once, by the worker.
func logFailed(log *zap.Logger, event string, err error, fields ...zap.Field) {
	say := log.Warn
	if errors.Is(err, link.ErrNoConnection) {
		say = log.Debug
	}
	say(event, append(fields, zap.Error(err))...)
}
