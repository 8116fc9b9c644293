// SPDX-License-Identifier: Apache-2.0

package queue

import "slices"

// A grant is credit that arrived at one time. ordinal orders the grants of all consumers of a
// queue.
type grant struct {
	ordinal uint64
	n       int64
}

const (
	// maxCredit is far above what a peer can state, and keeps sums from overflowing.
	maxCredit = 1 << 40
	// maxGrants bounds what a consumer that grants one credit at a time can make the queue remember.
	maxGrants = 64
)

// AddCredit lets the consumer receive n more, or fewer when n is negative. In that case credit that
// is not used yet goes first, the latest before the earliest. Then deliveries that lie in the
// outbox go back to the queue, uncounted. The remainder is owed by credit to come. A taken delivery
// that could not be passed on is made good by Release and AddCredit(1), or else its credit is gone.
// New credit withdraws a drain that Take has not reported.
func (c *Consumer) AddCredit(n int64) {
	now, ok := c.enter()
	if !ok {
		return
	}
	defer c.q.leave(now)
	c.change(n, now)
}

func (c *Consumer) change(n int64, now instant) {
	n = min(max(n, -maxCredit), maxCredit)
	if n > 0 {
		c.grant(n)
		if c.credit > 0 { // what only makes good a debt is no new credit
			c.draining, c.drained = false, false
		}
		c.line.queue(c)
	}
	if n < 0 {
		c.reduce(-n, now)
	}
}

// grant adds n credits at the end of the order of arrival.
func (c *Consumer) grant(n int64) {
	n = min(n, maxCredit-c.credit)
	before := max(c.credit, 0)
	c.credit += n
	n = c.credit - before // less what was owed
	if n <= 0 {
		return
	}
	ordinal := c.line.nextOrdinal(c)
	last := len(c.grants) - 1
	if last >= 0 && (c.grants[last].ordinal == ordinal || len(c.grants) == maxGrants) {
		c.grants[last] = grant{ordinal, c.grants[last].n + n}
		return
	}
	c.grants = append(c.grants, grant{ordinal, n})
}

// spend uses the earliest credit.
func (c *Consumer) spend() {
	c.credit--
	if c.grants[0].n--; c.grants[0].n == 0 {
		c.grants = slices.Delete(c.grants, 0, 1)
	}
}

// revoke takes n credits, which must not be used yet, the latest first.
func (c *Consumer) revoke(n int64) {
	c.credit -= n
	for n > 0 {
		last := len(c.grants) - 1
		k := min(n, c.grants[last].n)
		n -= k
		if c.grants[last].n -= k; c.grants[last].n == 0 {
			if last == 0 {
				c.line.unqueue(c) // needs the grant to find its place in the line
			}
			c.grants = c.grants[:last]
		}
	}
}

// reduce is AddCredit(-n).
func (c *Consumer) reduce(n int64, now instant) {
	k := min(n, max(c.credit, 0))
	c.revoke(k)
	n -= k
	k = min(n, c.lapsed) // after the rest: while some has lapsed, the consumer waits for its Take
	c.lapsed -= k
	n -= k
	k = min(n, int64(len(c.outbox)))
	for range k {
		last := len(c.outbox) - 1
		e := c.outbox[last]
		c.outbox[last] = nil
		c.outbox = c.outbox[:last]
		c.q.locks.giveBack(e, false, now)
	}
	c.credit -= n - k
}
