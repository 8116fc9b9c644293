// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"sync"
	"time"

	"overdue/internal/servicebus/duration"
	"overdue/monitor/search"
	"overdue/scheduler"
)

// maxEarly is by how much IsEarly sets the clock behind a deadline at most.
const maxEarly = 5 * time.Second

// Clock is a lower bound of the clock of the broker: the latest stamp that it made, carried on by
// our monotonic clock. It is behind by the time that a companion took to arrive, and ahead only
// after the clock of the broker was set back. So code that dead-letters a message by it asks
// IsEarly as well.
type Clock struct {
	Measured func() scheduler.Instant // of the scheduler

	mu    sync.Mutex
	stamp time.Time
	at    time.Time // our clock when the stamp was seen
}

// Observe takes a stamp that the broker has just made.
func (c *Clock) Observe(stamp time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() || stamp.After(c.nowLocked()) {
		c.stamp, c.at = stamp, time.Now()
	}
}

// IsEarly reports whether a deadline is still to come when the broker has just locked a message.
// The lock ends a lock duration after that, so it shows the time by the broker's clock. Stamps do
// not, where that clock was set back since: then IsEarly sets this one back. A lock duration of 0
// is unknown, and shows nothing.
//
// If the lock duration was lowered a moment ago, the lock seems older than it is. So the caller
// asks for the settings again, and the clock goes back by no more than maxEarly.
func (c *Clock) IsEarly(deadline, lockedUntil time.Time, lock time.Duration) bool {
	locked := lockedUntil.Add(-lock)
	isKnown := lock > 0 && !lockedUntil.IsZero()
	if !isKnown || !locked.Before(deadline.Truncate(c.Grain()).Add(c.Grain())) {
		return false
	}
	locked = duration.Later(locked, deadline.Add(-maxEarly))
	c.mu.Lock()
	defer c.mu.Unlock()
	if locked.Before(c.nowLocked()) {
		c.stamp, c.at = locked, time.Now()
	}
	return true
}

// Now returns a lower bound of the clock of the broker.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nowLocked()
}

func (c *Clock) nowLocked() time.Time {
	age := time.Since(c.at)
	return c.stamp.Add(age - age/5000) // our clock gains 200 µs a second at most
}

// Until returns how long it takes our clock until Now has reached t.
func (c *Clock) Until(t time.Time) time.Duration {
	d := t.Sub(c.Now())
	return d + max(d, 0)/4000 // more than what Now takes off
}

// Grain is the resolution of the stamps of the broker: the instant itself may be later by up to
// that.
func (c *Clock) Grain() time.Duration { return max(c.Measured().Grain, search.StampPrecision) }

// Latest returns the clock of the broker, or a little less. Unlike Now it is right after a time
// without companions, if the scheduler has measured it. It has the error of the measurement, so it
// must not decide about expiry.
func (c *Clock) Latest() time.Time {
	measured := c.Measured()
	if !measured.Measured {
		return c.Now()
	}
	return duration.Later(c.Now(), measured.Time.Add(-measured.Uncertainty))
}

// NotAfter returns an instant that the clock of the broker has not reached yet. It is unknown
// without a measurement, and where a stamp contradicts the last one: this machine was suspended
// since, or a clock was set.
func (c *Clock) NotAfter() (now time.Time, known bool) {
	measured := c.Measured()
	now = measured.Time.Add(measured.Uncertainty)
	return now, measured.Measured && !c.Now().After(now)
}
