// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"sync"
	"time"
)

// brokerClock is a lower bound of the broker's clock: the latest stamp that it was
// seen to make, carried on by our monotonic clock. It is behind by the time that a companion
// took to get here, and never ahead, so what is overdue by it is overdue.
type brokerClock struct {
	mu    sync.Mutex
	stamp time.Time
	at    time.Time // our clock when the stamp was seen
}

// observe takes a stamp that the broker has just made.
func (c *brokerClock) observe(stamp time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.at.IsZero() || stamp.After(c.stamp.Add(now.Sub(c.at))) {
		c.stamp, c.at = stamp, now
	}
}

func (c *brokerClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stamp.Add(time.Since(c.at))
}
