// SPDX-License-Identifier: Apache-2.0

package history

import "time"

// A clock says how old entries are. It follows the machine's clock, but runs at most twice as fast
// as time passes: if the machine's clock jumps ahead, by mistake or after a long stop, the history
// does not lose everything at once.
type clock struct {
	reads time.Time
	at    time.Time // the machine's clock at the last reading, with its monotonic reading
}

// newClock returns a clock that goes on where one stopped. last is zero for the first.
func newClock(last, now time.Time) clock {
	if last.IsZero() || last.After(now) {
		last = now
	}
	return clock{reads: last, at: now}
}

func (c *clock) advance(now time.Time) {
	passed := max(now.Sub(c.at), 0) // on the monotonic clock
	c.at = now
	if c.reads = c.reads.Add(2 * passed); c.reads.After(now) {
		c.reads = now
	}
}
