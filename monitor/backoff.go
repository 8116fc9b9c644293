// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"errors"
	"sync"
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

// outage is since when there is no connection. The zero value means that there is one.
type outage struct {
	mu    sync.Mutex
	since time.Time
}

// noteResult records the result of an operation that needs the connection, and logs a change.
func (o *outage) noteResult(log *zap.Logger, err error) {
	down, up := errors.Is(err, link.ErrNoConnection), err == nil
	o.mu.Lock()
	since := o.since
	switch {
	case down && since.IsZero():
		o.since = time.Now()
	case up:
		o.since = time.Time{}
	}
	o.mu.Unlock()
	switch {
	case down && since.IsZero():
		log.Warn("connection to the namespace lost", zap.Error(err), zap.Duration("retry_every", intake.ReconnectEvery))
	case up && !since.IsZero():
		log.Info("connection to the namespace restored", zap.Duration("down_for", time.Since(since)))
	}
}

// retryAfter returns how long wt waits after its check failed with err.
func (w *Worker) retryAfter(wt *watch, err error) time.Duration {
	if link.Lost(err) {
		return intake.ReconnectEvery
	}
	wt.failures++
	return min(retryMin<<min(wt.failures-1, 10), retryMax)
}

// logFailed logs a failure at an entity. A lost connection is logged once, by outage.
func logFailed(log *zap.Logger, event string, err error, fields ...zap.Field) {
	say := log.Warn
	if errors.Is(err, link.ErrNoConnection) {
		say = log.Debug
	}
	say(event, append(fields, zap.Error(err))...)
}
