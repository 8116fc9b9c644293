// SPDX-License-Identifier: Apache-2.0

package queue

import "sync/atomic"

// A Quota bounds the bytes that queues hold together: one queue with its dead-letter queue, or all
// queues that were made with the same one. Its methods may be called from any goroutine.
type Quota struct {
	limit atomic.Int64
	used  atomic.Int64
}

// NewQuota makes a quota of limit bytes. 0 or less means no bound.
func NewQuota(limit int64) *Quota {
	u := new(Quota)
	u.SetLimit(limit)
	return u
}

// SetLimit changes the bound. Messages above a lower bound stay; it only keeps more from coming.
func (u *Quota) SetLimit(limit int64) { u.limit.Store(max(limit, 0)) }

// Limit is the bound in bytes, 0 when there is none.
func (u *Quota) Limit() int64 { return u.limit.Load() }

// Used is how many bytes are held, messages and what is reserved for them. It may stand above the
// limit: what happens to messages inside a queue is never refused.
func (u *Quota) Used() int64 { return u.used.Load() }

// take adds n bytes, or none and reports false when they would exceed the limit.
func (u *Quota) take(n int64) bool {
	limit := u.limit.Load()
	if limit == 0 {
		u.used.Add(n)
		return true
	}
	for {
		used := u.used.Load()
		if used+n > limit {
			return false
		}
		if u.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// add is take that is not refused; n may be negative.
func (u *Quota) add(n int64) { u.used.Add(n) }
