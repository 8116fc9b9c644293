// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"sync"
	"time"
)

// driftPerSecond bounds what our clock gains on that of the broker in a second.
const driftPerSecond = 200 * time.Microsecond

// brokerClock is a lower bound of the clock of the broker: the latest stamp that it made,
// carried on by our monotonic clock less driftPerSecond. It is behind by the time that a
// companion took to arrive, and never ahead. So a message that is overdue by it is overdue.
type brokerClock struct {
	mu    sync.Mutex
	stamp time.Time
	at    time.Time // our clock when the stamp was seen
}

// observe takes a stamp that the broker has just made.
func (c *brokerClock) observe(stamp time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() || stamp.After(c.nowLocked()) {
		c.stamp, c.at = stamp, time.Now()
	}
}

func (c *brokerClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nowLocked()
}

func (c *brokerClock) nowLocked() time.Time {
	age := time.Since(c.at)
	return c.stamp.Add(age - time.Duration(age.Seconds()*float64(driftPerSecond)))
}
