// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"cmp"
	"testing"
	"time"
)

// receive gives c credit for n and takes what comes of it.
func receive(c *Consumer, n int) []Delivery {
	c.AddCredit(int64(n))
	ds, _, _ := c.Take(nil)
	return ds
}

// drain is a receive that ends: n credits, and those not used are withdrawn.
func drain(t *testing.T, c *Consumer, n int) []Delivery {
	t.Helper()
	c.AddCredit(int64(n))
	c.Drain()
	var ds []Delivery
	for {
		var drained bool
		before := len(ds)
		if ds, drained, _ = c.Take(ds); drained {
			return ds
		}
		if len(ds) == before {
			t.Fatalf("Take after Drain gave nothing and did not report drained")
		}
	}
}

func send(t *testing.T, q *Queue, ms ...Message) int64 {
	t.Helper()
	first, err := q.Send(ms...)
	if err != nil {
		t.Fatalf("Send: %v", err)
	}
	return first
}

func text(s string) Message { return Message{Body: []byte(s)} }

func bodies[T interface{ text() string }](vs []T) []string {
	out := make([]string, len(vs))
	for i, v := range vs {
		out[i] = v.text()
	}
	return out
}

func (v View) text() string { return string(v.Body) }

// Renew is Sessions.RenewLock for the holder of this lock.
func (h *Session) Renew() (time.Time, error) {
	now, err := h.q.enter()
	if err != nil {
		return time.Time{}, err
	}
	defer h.q.leave(now)
	if h.over {
		return time.Time{}, ErrSessionLockLost
	}
	return h.renew(now), nil
}

// isLost reports whether the session is no longer locked by h.
func (h *Session) isLost() bool {
	h.q.mu.Lock()
	defer h.q.mu.Unlock()
	return h.over
}

// awaitLost waits until it is.
func (h *Session) awaitLost() {
	for !h.isLost() {
		time.Sleep(time.Millisecond)
	}
}

// Credit is how many deliveries the consumer can still take, those in the outbox included; below
// zero when it owes some.
func (c *Consumer) Credit() int64 {
	now, ok := c.enter()
	if !ok {
		return 0
	}
	defer c.q.leave(now)
	return c.credit + int64(len(c.outbox)) + c.lapsed
}

// SetCredit is AddCredit of the difference between n and Credit.
func (c *Consumer) SetCredit(n uint32) { c.AddCredit(int64(n) - c.Credit()) }

// RenewLock is RenewLocks of one.
func (q *Queue) RenewLock(t LockToken) (time.Time, error) {
	until, err := q.RenewLocks([]LockToken{t})
	if err != nil {
		return time.Time{}, err
	}
	return until[0], nil
}

// Abandon is Settle with that outcome.
func (q *Queue) Abandon(t LockToken, properties ...Property) error {
	return cmp.Or(q.Settle(Settlement{Outcome: Abandon, Properties: properties}, t)...)
}

// Defer is Settle with that outcome.
func (q *Queue) Defer(t LockToken, properties ...Property) error {
	return cmp.Or(q.Settle(Settlement{Outcome: Defer, Properties: properties}, t)...)
}

// DeadLetter is Settle with that outcome.
func (q *Queue) DeadLetter(t LockToken, reason, description string, properties ...Property) error {
	return cmp.Or(q.Settle(Settlement{
		Outcome:                    DeadLetter,
		Properties:                 properties,
		DeadLetterReason:           reason,
		DeadLetterErrorDescription: description,
	}, t)...)
}

// seen is the messages of a peek that has to succeed.
func seen(vs []View, err error) []View {
	if err != nil {
		panic(err)
	}
	return vs
}
