// SPDX-License-Identifier: Apache-2.0

package queue

import "slices"

// Mode says what a delivery does to the message.
type Mode int

// The modes of a consumer.
const (
	PeekLock         Mode = iota // locks it; the holder of the token settles it
	ReceiveAndDelete             // removes it as soon as it is taken

	// LockAndRemove is PeekLock for somebody who completes the message at the moment at which it leaves.
	// For the log it is gone as soon as it is taken, and new when its lock ends otherwise.
	LockAndRemove
)

// outboxLimit is how many deliveries wait for one consumer. Deliveries that a consumer does not
// fetch are kept from all others until their locks lapse, so a large credit alone must not be
// enough to take a queue hostage.
const outboxLimit = 256

// Consumer receives from a queue. Deliveries come to its outbox as long as it has credit. Its
// methods may be called from any goroutine, Take from one at a time if order matters.
type Consumer struct {
	q     *Queue
	line  *consumers // those it shares messages with: of the queue, or of its session
	mode  Mode
	limit int // outboxLimit; tests make it small
	ready chan struct{}

	// The rest is guarded by q.mu.
	outbox   []*entry // assigned, locked, not taken
	credit   int64    // further deliveries to assign; below zero when credit was taken back after use
	grants   []grant  // when the credit came; their sum is max(credit, 0)
	lapsed   int64    // credit of deliveries that lapsed in the outbox, given back by the next Take
	queued   bool     // in the queue's line of consumers that can be given a message
	draining bool     // credit ends as soon as no message is available
	drained  bool     // it has, and Take has yet to say so
	closed   bool
}

// NewConsumer makes a consumer without credit. Close must be called. On a closed queue it is closed
// from the start, and so it is on a session queue, where Session.NewConsumer makes them.
func (q *Queue) NewConsumer(mode Mode) *Consumer {
	return newConsumer(q, mode, &q.dispatch.consumers, func() bool { return q.sessions != nil })
}

// newConsumer makes a consumer in line, which is guarded by q.mu, unless over.
func newConsumer(q *Queue, mode Mode, line *consumers, over func() bool) *Consumer {
	c := &Consumer{q: q, line: line, mode: mode, limit: outboxLimit, ready: make(chan struct{}, 1)}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || over() {
		c.shut()
	} else {
		line.add(c)
	}
	return c
}

// Ready yields after Take has got something to give; it is closed by Close, of the consumer or of
// the queue. It may yield once too often.
func (c *Consumer) Ready() <-chan struct{} { return c.ready }

// enter is Queue.enter for an operation of a consumer; it reports false when either is closed.
func (c *Consumer) enter() (now instant, ok bool) {
	now, err := c.q.enter()
	if err != nil {
		return 0, false
	}
	if c.closed {
		c.q.leave(now)
		return 0, false
	}
	return now, true
}

// Take appends what lies in the outbox to dst, at most 256 deliveries. It waits for nothing but a
// log from which contents are read. Drained answers Drain: every delivery before it has been taken,
// and the credit is zero. A delivery whose lock lapsed in the outbox is not among them: it went
// back to the queue, uncounted, and does not use up credit. Errors: those of the log; then nothing
// is taken.
func (c *Consumer) Take(dst []Delivery) (ds []Delivery, drained bool, err error) {
	err = c.q.changes.withContents(func(has contents) (missing []int64) {
		ds, drained, missing = c.take(dst, has)
		return missing
	})
	return ds, drained, err
}

// take is Take once there are the contents. As long as some are missing it takes nothing.
func (c *Consumer) take(dst []Delivery, has contents) (ds []Delivery, drained bool, missing []int64) {
	now, ok := c.enter()
	if !ok {
		return dst, false, nil
	}
	defer c.q.leave(now)
	r, n := request{has: has}, 0
	for room := true; room && n < len(c.outbox); n++ {
		room = r.add(c.outbox[n])
	}
	if len(r.missing) > 0 {
		return dst, false, r.missing
	}
	for _, e := range c.outbox[:n] {
		dst = append(dst, c.q.entries.delivery(e, c.mode, has))
		e.holder = nil
		c.q.changes.noteTaken(e, c.mode)
		if c.mode == ReceiveAndDelete {
			c.q.locks.unlock(e)
			c.q.entries.drop(e)
		}
	}
	if c.outbox = slices.Delete(c.outbox, 0, n); len(c.outbox) > 0 {
		c.signal()
	}
	c.resume(now)
	if len(c.outbox) > 0 {
		return dst, false, nil // Ready yields again
	}
	drained, c.drained = c.drained, false
	return dst, drained, nil
}

// resume lets the consumer have messages again after a stop of its own making, and goes on with a
// drain.
func (c *Consumer) resume(now instant) {
	lapsed := c.lapsed
	c.lapsed = 0
	c.grant(lapsed)
	c.line.queue(c)
	c.q.dispatch.assign(now)
	c.endDrain(now)
}

// Drain makes the consumer receive what is available, up to its credit, and then sets the credit to
// zero; Take tells when. Like every receive with credit it moves what has expired first. New credit
// withdraws a drain.
func (c *Consumer) Drain() {
	now, ok := c.enter()
	if !ok {
		return
	}
	defer c.q.leave(now)
	c.draining = true
	c.resume(now)
}

// endDrain ends a drain when nothing is left to assign. Messages can only be left over by an outbox
// that is full; then the next Take goes on.
func (c *Consumer) endDrain(now instant) {
	if !c.draining || c.closed || c.credit > 0 && len(c.outbox) >= c.limit {
		return
	}
	if c.credit > 0 && c.q.agenda.behind(now) {
		if !slices.Contains(c.q.dispatch.undrained, c) {
			c.q.dispatch.undrained = append(c.q.dispatch.undrained, c)
		}
		return
	}
	c.draining, c.drained = false, true
	c.revoke(max(c.credit, 0))
	c.signal()
}

// Close gives what lies in the outbox back to the queue, uncounted, and closes Ready. What was
// taken stays locked and can be settled; if nobody does, the locks lapse in their time.
func (c *Consumer) Close() {
	now, ok := c.enter()
	if !ok {
		return
	}
	defer c.q.leave(now)
	c.line.remove(c)
	outbox := c.outbox
	c.shut()
	for _, e := range outbox {
		c.q.locks.giveBack(e, false, now)
	}
}

// shut is what Close does to the consumer alone.
func (c *Consumer) shut() {
	c.closed = true
	c.outbox, c.grants = nil, nil
	close(c.ready)
}

// signal says that Take has something to give.
func (c *Consumer) signal() {
	select {
	case c.ready <- struct{}{}:
	default: // said already
	}
}

// give assigns e, which waits no more, to c.
func (c *Consumer) give(e *entry, now instant) {
	c.q.locks.lock(e, c.mode, now)
	e.holder = c
	c.outbox = append(c.outbox, e)
	c.spend()
	c.signal()
}

// lose takes e, whose lock has lapsed, out of the outbox. The owner of c is stuck, so c gets
// nothing until the next Take, or else it would keep the same messages from everybody for another
// lock duration.
func (c *Consumer) lose(e *entry) {
	i := slices.Index(c.outbox, e)
	c.outbox = slices.Delete(c.outbox, i, i+1)
	c.lapsed++
	c.line.unqueue(c)
}

// able: c can be given a message.
func (c *Consumer) able() bool {
	return !c.closed && c.credit > 0 && c.lapsed == 0 && len(c.outbox) < c.limit
}
