// SPDX-License-Identifier: Apache-2.0

package queue

import "time"

// An entry is one message in a queue. The queue's mutex guards it.
type entry struct {
	seq         int64
	body        []byte // nil and an empty messageID: see away
	messageID   string
	sessionID   string
	ttl         time.Duration // capped; 0: none
	scheduledAt instant       // unset: was not scheduled
	enqueuedAt  instant
	expiresAt   instant // never: has no ttl, or is not enqueued yet
	extra       *extra
	delivered
	ref         ref    // while it is in a queue
	contentSize uint32 // bytes of body and messageID, also while the log alone has them
	record      recordNumber
	marks       uint8 // see below
	kept        uint8 // see changes
}

// The bits of entry.marks.
const (
	itemWaiting   uint8 = 1 << iota // a lazyHeap has an item for it
	itemExpiry                      // the same
	markEntityTTL                   // ttl is the queue's default alone
	markSession                     // sessionID is meant
	markActivated                   // it was scheduled, here or where it came from
)

// delivered is how an entry stands with consumers.
type delivered struct {
	lockedUntil instant // by its last lock; unset: there was none
	token       LockToken
	holder      *Consumer // in whose outbox it lies, locked but not taken
	count       int32     // failed deliveries
	state       State
	waiting     bool
	locked      bool
	held        bool // its lock does not lapse, see Hold
}

// extra is what most messages never have. It is replaced, not changed: views share it.
type extra struct {
	properties     []Property
	reason         string
	description    string
	source         string
	deadLetteredAt instant
	enqueuedSeq    int64 // in the queue it was first sent to; 0: this one
	hops           int
	propertiesSize int64 // of properties, in bytes
}

func (x *extra) size() int64 {
	return x.propertiesSize + int64(len(x.reason)+len(x.description)+len(x.source))
}

// noExtra stands in for a missing one when reading.
var noExtra = &extra{deadLetteredAt: unset}

func (e *entry) more() *extra {
	if e.extra == nil {
		return noExtra
	}
	return e.extra
}

// entryOverhead is what an empty message costs in memory. It counts towards the size of the queue,
// or else empty messages would have no bound.
const entryOverhead = 256

func (e *entry) size() int64 {
	return entryOverhead + int64(e.contentSize) + int64(len(e.sessionID)) + e.more().size()
}

// size is what the entry of m will count.
func (m *Message) size() int64 {
	n := entryOverhead + int64(len(m.Body)+len(m.MessageID)+len(m.SessionID))
	if x, has := m.extra(); has {
		n += x.size()
	}
	return n
}

// extra is what m has beyond the ordinary, if it has.
func (m *Message) extra() (x extra, has bool) {
	if len(m.Properties) == 0 && m.DeadLetterReason == "" && m.DeadLetterErrorDescription == "" &&
		m.DeadLetterSource == "" && m.EnqueuedSequenceNumber == 0 && m.Hops == 0 {
		return extra{}, false
	}
	x = extra{
		properties:     m.Properties,
		reason:         m.DeadLetterReason,
		description:    m.DeadLetterErrorDescription,
		source:         m.DeadLetterSource,
		enqueuedSeq:    m.EnqueuedSequenceNumber,
		hops:           m.Hops,
		deadLetteredAt: unset,
	}
	for _, p := range m.Properties {
		x.propertiesSize += propertySize(p)
	}
	return x, true
}

// contentSize is the bytes of m that nobody needs but those who are given it.
func (m *Message) contentSize() uint32 { return uint32(len(m.Body) + len(m.MessageID)) }

// marks is the marks of an entry of m.
func (m *Message) marks() (marks uint8) {
	if m.HasSession {
		marks |= markSession
	}
	if m.Activated {
		marks |= markActivated
	}
	return marks
}

// newEntry is the entry of m in a queue with these settings.
func newEntry(m *Message, seq int64, cfg *settings, now instant) *entry {
	e := &entry{
		seq:         seq,
		record:      recordOf(seq),
		body:        m.Body,
		messageID:   m.MessageID,
		contentSize: m.contentSize(),
		sessionID:   m.SessionID,
		marks:       m.marks(),
		ttl:         max(m.TTL, 0),
		scheduledAt: unset,
		delivered:   delivered{lockedUntil: unset},
		enqueuedAt:  now,
		expiresAt:   never,
	}
	if x, has := m.extra(); has {
		allocated := x // most messages have none
		e.extra = &allocated
	}
	if limit := cfg.DefaultMessageTimeToLive; limit > 0 && (e.ttl == 0 || e.ttl > limit) {
		if e.ttl == 0 {
			e.marks |= markEntityTTL
		}
		e.ttl = limit
	}
	if !m.ScheduledEnqueueTime.IsZero() {
		e.scheduledAt = instantOf(m.ScheduledEnqueueTime)
	}
	return e
}

// enqueue starts the life of a message: from now on it waits, and its time to live runs.
func (e *entry) enqueue(now instant) {
	e.state = Active
	e.enqueuedAt = now
	if e.ttl > 0 {
		e.expiresAt = now.add(e.ttl)
	}
}
