// SPDX-License-Identifier: Apache-2.0

package search

import (
	"hash/maphash"
	"maps"
	"slices"
	"time"

	"overdue/internal/servicebus/link"
)

// A CachedMessage is a message that was read, with its time to live in milliseconds.
type CachedMessage struct {
	Identity
	life  int64
	Read  time.Time     // by our clock: it was there
	Whole *link.Message // nil unless the cache keeps messages whole
	name  uint64        // hash of the message-id of Whole
}

var hashSeed = maphash.MakeSeed()

func hashOf(messageID string) uint64 { return maphash.String(hashSeed, messageID) }

// cached returns m as the cache keeps it, which was there at that instant.
func cached(m *link.Message, read time.Time, whole bool) CachedMessage {
	c := CachedMessage{Identity: IdentityOf(m), life: m.TimeToLive.Milliseconds(), Read: read}
	if whole {
		c.Whole, c.name = m, hashOf(m.MessageID)
	}
	return c
}

// Message returns the message, or the fields that assign it to a slot.
func (m CachedMessage) Message() *link.Message {
	if m.Whole != nil {
		return m.Whole
	}
	return &link.Message{SequenceNumber: m.Number, EnqueuedTime: m.EnqueuedTime(), TimeToLive: time.Duration(m.life) * time.Millisecond}
}

// Due distinguishes the cached messages that may become due in a range of time from most others.
type Due struct {
	TimeRange               // in which the time to live ends that they state
	Most      time.Duration // longer times to live end earlier than they state; 0: none do
}

// mayHave reports whether m may become due in d.
func (d *Due) mayHave(m *CachedMessage) bool {
	return m.life == 0 || d.Holds(m.Enqueued+m.life) || d.shortens(m.life)
}

func (d *Due) shortens(life int64) bool { return d.Most != 0 && life > d.Most.Milliseconds() }

// cachedMessages are in groups by when the time to live ends that they state, so that a slot reads
// only what may belong to it.
type cachedMessages struct {
	groups  map[int64][]CachedMessage // by groupOf
	n       int                       // in all groups
	longest int64                     // time to live so far, in milliseconds
}

// unstated is the group of the messages that state no time to live.
const unstated = -1

// groupLength is how long the times of a group are, in milliseconds.
const groupLength = 128

func groupOf(m *CachedMessage) int64 {
	if m.life == 0 {
		return unstated
	}
	return (m.Enqueued + m.life) / groupLength
}

func (c *cachedMessages) add(m CachedMessage) {
	if c.groups == nil {
		c.groups = map[int64][]CachedMessage{}
	}
	c.groups[groupOf(&m)] = append(c.groups[groupOf(&m)], m)
	c.n++
	c.longest = max(c.longest, m.life)
}

// in returns the groups, in order, of the messages that may become due in d.
func (c *cachedMessages) in(d *Due) (groups []int64) {
	first, last := d.From/groupLength, d.Until/groupLength
	switch {
	case d.shortens(c.longest):
		return c.all()
	case last-first > int64(len(c.groups)):
		return slices.DeleteFunc(c.all(), func(g int64) bool { return g != unstated && (g < first || g > last) })
	}
	groups = append(groups, unstated)
	for g := first; g <= last; g++ {
		groups = append(groups, g)
	}
	return groups
}

func (c *cachedMessages) all() []int64 { return slices.Sorted(maps.Keys(c.groups)) }

// each calls see with the messages that may become due in d.
func (c *cachedMessages) each(d *Due, see func(*CachedMessage)) {
	for _, g := range c.in(d) {
		some := c.groups[g]
		for i := range some {
			if d.mayHave(&some[i]) {
				see(&some[i])
			}
		}
	}
}

// drop removes those messages of some groups that over accepts.
func (c *cachedMessages) drop(groups []int64, over func(*CachedMessage) bool) {
	for _, g := range groups {
		all := c.groups[g]
		left := all[:0]
		for i := range all { // and not with slices.DeleteFunc, which would allocate each message
			if !over(&all[i]) {
				left = append(left, all[i])
			}
		}
		clear(all[len(left):])
		if c.n -= len(all) - len(left); len(left) > 0 {
			c.groups[g] = left
		} else {
			delete(c.groups, g)
		}
	}
}

// some reports whether some message is so.
func (c *cachedMessages) some(is func(*CachedMessage) bool) bool {
	for _, group := range c.groups {
		for i := range group {
			if is(&group[i]) {
				return true
			}
		}
	}
	return false
}
