// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// A model is a queue as a slice, written to be obviously right: every question is answered by looking at everything.
// Time only moves between operations.
type model struct {
	cfg       Config
	now       time.Time
	dead      *model // nil: a dead-letter queue
	lastSeq   int64
	msgs      []*modelMsg // unordered
	consumers []*modelConsumer
	credit    []*modelConsumer // one element per credit, by order of arrival
}

type modelMsg struct {
	View
	locked bool
	until  time.Time
	token  LockToken // learnt when taken
	holder *modelConsumer
}

type modelConsumer struct {
	mode             Mode
	limit            int
	outbox           []*modelMsg
	debt, lapsed     int
	draining, closed bool
	drained          bool
}

func (m *model) expired(x *modelMsg) bool {
	return m.dead != nil && !x.ExpiresAt.IsZero() && !x.ExpiresAt.After(m.now)
}

func (m *model) waiting() []*modelMsg {
	var ws []*modelMsg
	for _, x := range m.sorted() {
		if x.State == Active && !x.locked {
			ws = append(ws, x)
		}
	}
	return ws
}

func (m *model) sorted() []*modelMsg {
	return slices.SortedFunc(slices.Values(m.msgs), func(a, b *modelMsg) int {
		return cmp.Compare(a.SequenceNumber, b.SequenceNumber)
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
}

func (m *model) deadLetter(x *modelMsg, reason, description string) {
	m.remove(x)
	x.State, x.locked, x.holder = Active, false, nil
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
	x.locked, x.holder = false, nil
	if failed && m.dead != nil {
		x.DeliveryCount++
	}
	if m.expired(x) {
		m.expire(x)
	} else if failed && m.dead != nil && x.DeliveryCount >= m.cfg.MaxDeliveryCount {
		m.deadLetter(x, "MaxDeliveryCountExceeded", fmt.Sprintf(
			"Message could not be consumed after %d delivery attempts.", m.cfg.MaxDeliveryCount))
	}
}

// settleTime does what is due: locks, schedule, expiry when eager, and then hands out what is there.
func (m *model) settleTime() {
	for _, x := range m.sorted() {
		if x.locked && !x.until.After(m.now) {
			c := x.holder
			if c != nil {
				c.outbox = slices.DeleteFunc(c.outbox, func(y *modelMsg) bool { return x == y })
				c.lapsed++
			}
			m.giveBack(x, c == nil)
		}
	}
	due := slices.DeleteFunc(m.sorted(), func(x *modelMsg) bool {
		return x.State != Scheduled || x.ScheduledEnqueueTime.After(m.now)
	})
	slices.SortStableFunc(due, func(a, b *modelMsg) int {
		return a.ScheduledEnqueueTime.Compare(b.ScheduledEnqueueTime)
	})
	for _, x := range due {
		m.lastSeq++
		x.SequenceNumber = m.lastSeq
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
}

// assign is one credit and one message at a time.
func (m *model) assign() {
	for {
		i := slices.IndexFunc(m.credit, func(c *modelConsumer) bool {
			return len(c.outbox) < c.limit && c.lapsed == 0
		})
		if i < 0 {
			return
		}
		if m.cfg.Expiry == Lazy {
			m.flush()
		}
		ws := m.waiting()
		if len(ws) == 0 {
			return
		}
		x, c := ws[0], m.credit[i]
		if m.expired(x) {
			m.expire(x)
			continue
		}
		m.credit = slices.Delete(m.credit, i, i+1)
		m.lock(x)
		x.holder = c
		c.outbox = append(c.outbox, x)
	}
}

func (m *model) lock(x *modelMsg) {
	x.locked, x.until = true, m.now.Add(m.cfg.LockDuration)
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
