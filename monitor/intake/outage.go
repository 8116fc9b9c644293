// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"errors"
	"sync"
	"time"

	"overdue/internal/servicebus/link"

	"go.uber.org/zap"
)

// An Outage is since when there is no connection. The zero value means that there is one.
type Outage struct {
	mu    sync.Mutex
	since time.Time
}

// Note records the result of an operation that needs the connection, and logs a change.
func (o *Outage) Note(log *zap.Logger, err error) {
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
		log.Warn("connection to the namespace lost", zap.Error(err), zap.Duration("retry_every", ReconnectEvery))
	case up && !since.IsZero():
		log.Info("connection to the namespace restored", zap.Duration("down_for", time.Since(since)))
	}
}
