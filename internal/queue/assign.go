// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"cmp"
	"slices"
)

// assign gives waiting messages, in sequence order, to consumers with credit, in the order in which the credit came.
// This is what a receive is: it moves expired messages as Config.Expiry says, and never delivers one.
func (q *Queue) assign(now instant) {
	if len(q.consumers.line) == 0 {
		return
	}
	if q.cfg.Expiry != LazyHead {
		q.flush(now)
	}
	for c := q.consumers.first(); c != nil; c = q.consumers.first() {
		e, _ := q.waiting.min()
		if e == nil {
			return
		}
		q.unwait(e)
		if q.expired(e, now) {
			q.expire(e)
			continue
		}
		ordinal := c.grants[0].ordinal
		c.give(e, now)
		if !c.able() || c.grants[0].ordinal != ordinal {
			q.consumers.pop()
			q.consumers.queue(c) // its next credit came later
		}
	}
}

// consumers is the consumers of a queue.
type consumers struct {
	all     map[*Consumer]struct{}
	line    []*Consumer // able to be given a message, by the ordinal of their first grant
	ordinal uint64      // the latest given
	latest  *Consumer   // to whom
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
	*cs = consumers{}
}

// nextOrdinal is the ordinal of a grant of c. It is the one before when nobody else was granted credit since.
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
}

// queue puts c in the line, where its earliest credit belongs, if it is able and not there yet.
func (cs *consumers) queue(c *Consumer) {
	if c.queued || !c.able() {
		return
	}
	i, _ := cs.find(c)
	cs.line = slices.Insert(cs.line, i, c)
	c.queued = true
}

func (cs *consumers) unqueue(c *Consumer) {
	if !c.queued {
		return
	}
	c.queued = false
	if i, ok := cs.find(c); ok {
		cs.line = slices.Delete(cs.line, i, i+1)
	}
}

func (cs *consumers) find(c *Consumer) (int, bool) {
	return slices.BinarySearchFunc(cs.line, c.grants[0].ordinal, func(o *Consumer, ordinal uint64) int {
		return cmp.Compare(o.grants[0].ordinal, ordinal)
	})
}
