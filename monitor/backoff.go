// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"overdue/internal/servicebus/link"
)

// There are two kinds of failure, and each has a wait of its own. That there is no connection is one state of the worker, whoever
// notices: all try again at the same pace, however long it lasts, and one dial serves them (sblink). That one check fails,
// for whatever reason, says nothing of others: each watch that was part of it waits longer each time.
const (
	// reconnectEvery is how often whoever needs the connection looks whether there is one again. Together with the rest between two
	// dials it is well below a second, see TestMissedDeadlinesAfterAnOutage.
	reconnectEvery = 250 * time.Millisecond
	// A check that failed is repeated after retryMin, doubling up to retryMax.
	retryMin = 100 * time.Millisecond
	retryMax = 10 * time.Second
)

// outage is since when the connection is down. Its zero value is that it is not.
type outage struct {
	mu    sync.Mutex
	since time.Time
}

// noteResult takes note of what became of something that needed the connection, and logs a change.
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
		log.Warn("connection lost", zap.Error(err), zap.Duration("retry_every", reconnectEvery))
	case up && !since.IsZero():
		log.Info("connection restored", zap.Duration("down_for", time.Since(since)))
	}
}

// retryAfter is how long wt waits after a check of it has failed with err.
func (w *Worker) retryAfter(wt *watch, err error) time.Duration {
	if link.Lost(err) {
		return reconnectEvery
	}
	wt.failures++
	return min(retryMin<<min(wt.failures-1, 10), retryMax)
}

// logFailed logs what failed at an entity, unless that is for want of a connection, which is logged once.
func logFailed(log *zap.Logger, event string, err error, fields ...zap.Field) {
	say := log.Warn
	if errors.Is(err, link.ErrNoConnection) {
		say = log.Debug
	}
	say(event, append(fields, zap.Error(err))...)
}
