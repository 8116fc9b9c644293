// SPDX-License-Identifier: Apache-2.0

package queue

import "time"

// An entry is one message in a queue. The queue's mutex guards it.
type entry struct {
	seq         int64
	body        []byte
	messageID   string
	sessionID   string
	ttl         time.Duration // capped; 0: none
	scheduledAt instant       // unset: was not scheduled
	enqueuedAt  instant
	expiresAt   instant // never: has no ttl, or is not enqueued yet
	lockedUntil instant // while locked
	token       LockToken
	holder      *Consumer // in whose outbox it lies, locked but not taken
	extra       *extra
	count       int32 // failed deliveries
	pos         [slots]int32
	state       State
	locked      bool
}

// nowhere is the position of an entry in a heap that it is not in.
const nowhere = -1

// extra is what most messages never have. It is replaced, not changed: views share it.
type extra struct {
	properties     []Property
	reason         string
	description    string
	source         string
	deadLetteredAt instant
	size           int64 // of properties, reason and description
	propertiesSize int64 // of properties alone
}

// noExtra stands in for a missing one when reading.
var noExtra = &extra{deadLetteredAt: unset}

func (e *entry) more() *extra {
	if e.extra == nil {
		return noExtra
	}
	return e.extra
}

// entryOverhead is what an empty message costs in memory. It counts towards the size of the queue, or else empty
// messages would have no bound.
const entryOverhead = 256

func (e *entry) size() int64 {
	return entryOverhead + int64(len(e.body)+len(e.messageID)+len(e.sessionID)) + e.more().size
}

func (q *Queue) newEntry(m *Message, seq int64, now instant) *entry {
	e := &entry{
		seq:         seq,
		body:        m.Body,
		messageID:   m.MessageID,
		sessionID:   m.SessionID,
		ttl:         max(m.TTL, 0),
		scheduledAt: unset,
		enqueuedAt:  now,
		expiresAt:   never,
		pos:         [slots]int32{nowhere, nowhere},
	}
	if limit := q.cfg.DefaultMessageTimeToLive; limit > 0 && (e.ttl == 0 || e.ttl > limit) {
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

func (e *entry) view() View {
	x := e.more()
	return View{
		Message: Message{
			Body:                 e.body,
			MessageID:            e.messageID,
			SessionID:            e.sessionID,
			TTL:                  e.ttl,
			ScheduledEnqueueTime: e.scheduledAt.time(),
		},
		SequenceNumber:             e.seq,
		EnqueuedTime:               e.enqueuedAt.time(),
		ExpiresAt:                  e.expiresAt.time(),
		DeliveryCount:              int(e.count),
		State:                      e.state,
		Properties:                 x.properties,
		DeadLetterReason:           x.reason,
		DeadLetterErrorDescription: x.description,
		DeadLetterSource:           x.source,
		DeadLetteredTime:           x.deadLetteredAt.time(),
	}
}

func (e *entry) delivery(mode Mode) Delivery {
	d := Delivery{View: e.view()}
	if mode == PeekLock {
		d.LockToken, d.LockedUntil = e.token, e.lockedUntil.time()
	}
	return d
}
