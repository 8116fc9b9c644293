// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"cmp"
	"slices"
)

// dispatcher gives messages to consumers.
type dispatcher struct {
	cfg       *settings
	waiting   *waiting
	expiry    *expiry
	sessions  *Sessions
	agenda    *agenda
	consumers consumers
	undrained []*Consumer // their drains wait for what is due and was left to the timer
}

// assign gives waiting messages, in sequence order, to consumers with credit, in the order in which
// the credit came. This is what a receive is: it moves expired messages as Config.Expiry says, and
// never delivers one.
func (d *dispatcher) assign(now instant) {
	if d.sessions != nil {
		d.assignSessions(now)
		return
	}
	d.expiry.moving = false
	if len(d.consumers.line) == 0 || d.cfg.Expiry != LazyHead && !d.expiry.flushWave(now) {
		return
	}
	d.serve(&d.waiting.line, &d.consumers, now)
}

// serve gives what is waiting to these consumers. It reports false when it has stopped for what has
// expired, see wave.
func (d *dispatcher) serve(waiting *lazyHeap, cs *consumers, now instant) bool {
	for c, moved := cs.first(), 0; c != nil; c = cs.first() {
		e := waiting.min()
		if e == nil {
			break
		}
		if d.expiry.expired(e, now) {
			if moved++; moved > wave {
				d.expiry.moving = true
				return false
			}
			d.expiry.cleanUp(e, now)
			continue
		}
		d.waiting.remove(e)
		ordinal := c.grants[0].ordinal
		c.give(e, now)
		if !c.able() || c.grants[0].ordinal != ordinal {
			cs.pop()
			cs.queue(c) // its next credit came later
		}
	}
	return true
}

// assignSessions is assign for a session queue: each session is a line of its own. A receive on any
// session moves the expired messages of all, since expiry belongs to the queue. In mode LazyHead,
// it moves those that stand before the first live message of its session.
func (d *dispatcher) assignSessions(now instant) {
	ss := d.sessions
	d.expiry.moving = false
	if ss.receiving == 0 || d.cfg.Expiry == LazyHead || d.expiry.flushWave(now) {
		d.assignTouched(now)
	}
	d.sessions.serveWaiters(now)
}

// assignTouched gives messages to the holders of sessions in which something has changed.
func (d *dispatcher) assignTouched(now instant) {
	ss := d.sessions
	for i := 0; i < len(ss.touched); i++ {
		s := ss.touched[i]
		s.touched = false
		if s.lock != nil && !d.serve(&s.waiting, &s.lock.consumers, now) {
			ss.touched = slices.Delete(ss.touched, 0, i+1)
			ss.touch(s)
			return
		}
	}
	clear(ss.touched)
	ss.touched = ss.touched[:0]
}

// endDrains ends the drains that waited until the queue is up to date.
func (d *dispatcher) endDrains(now instant) {
	if len(d.undrained) == 0 || d.agenda.behind(now) {
		return
	}
	cs := d.undrained
	d.undrained = nil
	for _, c := range cs {
		c.endDrain(now)
	}
}

// consumers is the consumers of a queue, or of one of its sessions.
type consumers struct {
	all      map[*Consumer]struct{}
	line     []*Consumer // able to be given a message, by the ordinal of their first grant
	ordinal  uint64      // the latest given
	latest   *Consumer   // to whom
	session  *session    // nil: of the queue
	sessions *Sessions   // beside session
}

func (cs *consumers) add(c *Consumer) {
	if cs.all == nil {
		cs.all = make(map[*Consumer]struct{})
	}
	cs.all[c] = struct{}{}
}

func (cs *consumers) remove(c *Consumer) {
	cs.unqueue(c)
	delete(cs.all, c)
	if cs.latest == c {
		cs.latest = nil
	}
}

func (cs *consumers) closeAll() {
	for c := range cs.all {
		c.shut()
	}
	cs.lined(-len(cs.line))
	*cs = consumers{session: cs.session, sessions: cs.sessions}
}

// nextOrdinal is the ordinal of a grant of c. It is the one before when nobody else was granted
// credit since.
func (cs *consumers) nextOrdinal(c *Consumer) uint64 {
	if cs.latest != c {
		cs.latest = c
		cs.ordinal++
	}
	return cs.ordinal
}

func (cs *consumers) first() *Consumer {
	if len(cs.line) == 0 {
		return nil
	}
	return cs.line[0]
}

func (cs *consumers) pop() {
	cs.line[0].queued = false
	cs.line[0] = nil
	cs.line = cs.line[1:]
	cs.lined(-1)
}

// queue puts c in the line, where its earliest credit belongs, if it is able and not there yet.
func (cs *consumers) queue(c *Consumer) {
	if c.queued || !c.able() {
		return
	}
	i, _ := cs.find(c)
	cs.line = slices.Insert(cs.line, i, c)
	c.queued = true
	cs.lined(1)
	if cs.session != nil {
		cs.sessions.touch(cs.session)
	}
}

// lined says that n more consumers stand in the line.
func (cs *consumers) lined(n int) {
	if cs.sessions != nil {
		cs.sessions.receiving += n
	}
}

func (cs *consumers) unqueue(c *Consumer) {
	if !c.queued {
		return
	}
	c.queued = false
	if i, ok := cs.find(c); ok {
		cs.line = slices.Delete(cs.line, i, i+1)
		cs.lined(-1)
	}
}

func (cs *consumers) find(c *Consumer) (int, bool) {
	return slices.BinarySearchFunc(cs.line, c.grants[0].ordinal, func(o *Consumer, ordinal uint64) int {
		return cmp.Compare(o.grants[0].ordinal, ordinal)
	})
}
