// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// A model is a queue as a slice, written to be obviously right: every question is answered by
// looking at everything. Time only moves between operations.
type model struct {
	cfg       Config
	now       time.Time
	dead      *model // nil: a dead-letter queue
	lastSeq   int64
	turn      uint32
	sent      []modelSent
	msgs      []*modelMsg // unordered
	consumers []*modelConsumer
	credit    []*modelConsumer // one element per credit, by order of arrival
	modelSessions
}

type modelMsg struct {
	View
	held   bool
	token  LockToken // learnt when taken
	holder *modelConsumer
	under  *modelLock // of its session
}

type modelConsumer struct {
	mode             Mode
	limit            int
	outbox           []*modelMsg
	debt, lapsed     int
	draining, closed bool
	drained          bool
	under            *modelLock // nil: of the queue
}

func (m *model) expired(x *modelMsg) bool {
	return m.dead != nil && !x.ExpiresAt.IsZero() && !x.ExpiresAt.After(m.now)
}

func (m *model) waiting() []*modelMsg {
	return slices.DeleteFunc(m.arrived(), func(x *modelMsg) bool { return x.State != Active || x.Locked })
}

// waitingFor is what c can be given.
func (m *model) waitingFor(c *modelConsumer) []*modelMsg {
	return slices.DeleteFunc(m.waiting(), func(x *modelMsg) bool {
		return c.under != nil && x.SessionID != c.under.id
	})
}

func (m *model) sorted() []*modelMsg {
	return slices.SortedFunc(slices.Values(m.msgs), func(a, b *modelMsg) int {
		return cmp.Compare(a.SequenceNumber, b.SequenceNumber)
	})
}

// arrived is the messages in the order of their arrival.
func (m *model) arrived() []*modelMsg {
	const mask = 1<<48 - 1
	return slices.SortedFunc(slices.Values(m.msgs), func(a, b *modelMsg) int {
		return cmp.Compare(a.SequenceNumber&mask, b.SequenceNumber&mask)
	})
}

func (m *model) find(seq int64) *modelMsg {
	for _, x := range m.msgs {
		if x.SequenceNumber == seq {
			return x
		}
	}
	return nil
}

func (m *model) remove(x *modelMsg) {
	m.msgs = slices.DeleteFunc(m.msgs, func(y *modelMsg) bool { return x == y })
	m.note()
}

func (m *model) deadLetter(x *modelMsg, reason, description string) {
	m.remove(x)
	x.State, x.Locked, x.holder = Active, false, nil
	x.DeadLetterReason, x.DeadLetterErrorDescription, x.DeadLetteredTime = reason, description, m.now
	m.dead.msgs = append(m.dead.msgs, x)
}

func (m *model) expire(x *modelMsg) {
	if m.cfg.DeadLetteringOnMessageExpiration {
		m.deadLetter(x, "TTLExpiredException", "The message expired and was dead lettered.")
	} else {
		m.remove(x)
	}
}

func (m *model) flush() {
	for _, x := range m.waiting() {
		if m.expired(x) {
			m.expire(x)
		}
	}
}

func (m *model) giveBack(x *modelMsg, failed bool) {
	x.Locked, x.holder = false, nil
	spent := failed && m.countDelivery(x)
	if m.expired(x) {
		m.expire(x)
	} else if spent {
		m.deadLetterSpent(x)
	}
	m.note()
}

func (m *model) countDelivery(x *modelMsg) (spent bool) {
	if m.dead != nil {
		x.DeliveryCount++
	}
	return m.dead != nil && x.DeliveryCount >= m.cfg.MaxDeliveryCount
}

func (m *model) deadLetterSpent(x *modelMsg) {
	m.deadLetter(x, "MaxDeliveryCountExceeded", fmt.Sprintf(
		"Message could not be consumed after %d delivery attempts.", m.cfg.MaxDeliveryCount))
}

// settleTime does what is due: locks, schedule, expiry when eager, and then hands out what is
// there.
func (m *model) settleTime() {
	m.forget()
	for _, x := range m.sorted() {
		if x.Locked && !x.held && x.under == nil && !x.LockedUntil.After(m.now) {
			c := x.holder
			if c != nil {
				c.outbox = slices.DeleteFunc(c.outbox, func(y *modelMsg) bool { return x == y })
				c.lapsed++
			}
			m.giveBack(x, c == nil)
		}
	}
	m.lapseSessions()
	due := slices.DeleteFunc(m.arrived(), func(x *modelMsg) bool {
		return x.State != Scheduled || x.held || x.ScheduledEnqueueTime.After(m.now)
	})
	slices.SortStableFunc(due, func(a, b *modelMsg) int {
		return a.ScheduledEnqueueTime.Compare(b.ScheduledEnqueueTime)
	})
	for _, x := range due {
		m.remove(x)
		m.lastSeq++
		x.SequenceNumber = x.SequenceNumber>>48<<48 | m.lastSeq
		m.msgs = append(m.msgs, x)
		x.Activated = true
		m.enqueue(x)
	}
	if m.cfg.Expiry == Eager {
		m.flush()
	}
	m.assign()
}

func (m *model) enqueue(x *modelMsg) {
	x.State, x.EnqueuedTime = Active, m.now
	if x.TTL > 0 {
		x.ExpiresAt = m.now.Add(x.TTL)
	}
	m.note()
}

// assign is one credit and one message at a time.
func (m *model) assign() {
	for m.assignOne() {
	}
	m.serveWaiters()
}

func (m *model) assignOne() bool {
	receiving := false
	for i, c := range m.credit {
		if len(c.outbox) >= c.limit || c.lapsed > 0 {
			continue
		}
		if !receiving && m.cfg.Expiry == Lazy {
			m.flush()
		}
		receiving = true
		ws := m.waitingFor(c)
		if len(ws) == 0 {
			continue
		}
		if m.expired(ws[0]) {
			m.expire(ws[0])
			return true
		}
		m.credit = slices.Delete(m.credit, i, i+1)
		m.lock(ws[0])
		ws[0].holder = c
		c.outbox = append(c.outbox, ws[0])
		return true
	}
	return false
}

func (m *model) lock(x *modelMsg) {
	x.Locked, x.LockedUntil = true, m.now.Add(m.cfg.LockDuration)
	if x.under = m.lockOf(x.SessionID); x.under != nil {
		x.LockedUntil = x.under.until
	}
	m.note()
}

func (m *model) creditOf(c *modelConsumer) (n int) {
	for _, o := range m.credit {
		if o == c {
			n++
		}
	}
	return n
}

func (m *model) addCredit(c *modelConsumer, n int) {
	m.grant(c, n)
	if n > 0 && m.creditOf(c) > 0 {
		c.draining, c.drained = false, false
	}
	for ; n < 0; n++ {
		last := len(m.credit) - 1
		for last >= 0 && m.credit[last] != c {
			last--
		}
		switch {
		case last >= 0:
			m.credit = slices.Delete(m.credit, last, last+1)
		case c.lapsed > 0:
			c.lapsed--
		case len(c.outbox) > 0:
			x := c.outbox[len(c.outbox)-1]
			c.outbox = c.outbox[:len(c.outbox)-1]
			m.giveBack(x, false)
		default:
			c.debt++
		}
	}
	m.assign()
}

func (m *model) grant(c *modelConsumer, n int) {
	for ; n > 0; n-- {
		if c.debt > 0 {
			c.debt--
		} else {
			m.credit = append(m.credit, c)
		}
	}
}

func (m *model) resume(c *modelConsumer) {
	n := c.lapsed
	c.lapsed = 0
	m.grant(c, n)
	m.assign()
	if c.draining && (m.creditOf(c) == 0 || len(c.outbox) < c.limit) {
		c.draining, c.drained = false, true
		m.credit = slices.DeleteFunc(m.credit, func(o *modelConsumer) bool { return o == c })
	}
}

func (m *model) take(c *modelConsumer) (taken []*modelMsg, drained bool) {
	taken, c.outbox = c.outbox, nil
	for _, x := range taken {
		x.holder = nil
		if c.mode == ReceiveAndDelete {
			m.remove(x)
		}
	}
	m.resume(c)
	if len(c.outbox) == 0 && c.drained {
		c.drained = false
		return taken, true
	}
	return taken, false
}

func (m *model) close(c *modelConsumer) {
	c.closed = true
	m.credit = slices.DeleteFunc(m.credit, func(o *modelConsumer) bool { return o == c })
	m.consumers = slices.DeleteFunc(m.consumers, func(o *modelConsumer) bool { return o == c })
	for _, x := range c.outbox {
		m.giveBack(x, false)
	}
	m.assign()
}
