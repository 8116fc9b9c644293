// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"cmp"
	"slices"
)

// assign gives waiting messages, in sequence order, to consumers with credit, in the order in which
// the credit came. This is what a receive is: it moves expired messages as Config.Expiry says, and
// never delivers one.
func (q *Queue) assign(now instant) {
	if q.sessions != nil {
		q.assignSessions(now)
		return
	}
	q.expiry.moving = false
	if len(q.consumers.line) == 0 || q.cfg.Expiry != LazyHead && !q.expiry.flushWave(now) {
		return
	}
	q.serve(&q.waiting.line, &q.consumers, now)
}

// serve gives what is waiting to these consumers. It reports false when it has stopped for what has
// expired, see wave.
func (q *Queue) serve(waiting *lazyHeap, cs *consumers, now instant) bool {
	for c, moved := cs.first(), 0; c != nil; c = cs.first() {
		e := waiting.min()
		if e == nil {
			break
		}
		if q.expiry.expired(e, now) {
			if moved++; moved > wave {
				q.expiry.moving = true
				return false
			}
			q.expiry.cleanUp(e, now)
			continue
		}
		q.waiting.remove(e)
		ordinal := c.grants[0].ordinal
		c.give(e, now)
		if !c.able() || c.grants[0].ordinal != ordinal {
			cs.pop()
			cs.queue(c) // its next credit came later
		}
	}
	return true
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
