// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"time"

	"overdue/internal/broker/quirk"
)

// entries is all messages of a queue. An entry is in the table, in the index by sequence number
// and, in a session queue, in the index of its session.
type entries struct {
	cfg      *settings
	changes  *changes
	quota    *Quota
	sessions *Sessions
	table    table
	byNumber index
	size     int64 // bytes of all of them
	deferred int
}

// enlist gives e its places.
func (es *entries) enlist(e *entry) {
	es.table.add(e)
	es.byNumber.insert(e)
	if es.sessions != nil {
		es.sessions.get(e.sessionID).byNumber.insert(e)
	}
}

// strike is the opposite of enlist.
func (es *entries) strike(e *entry) {
	es.byNumber.remove(e.seq)
	if es.sessions != nil {
		s := es.sessions.byID[e.sessionID]
		s.byNumber.remove(e.seq)
		es.sessions.tidy(s)
	}
	es.table.remove(e)
	e.marks &^= itemWaiting | itemExpiry
}

// admit takes e in; it waits nowhere yet.
func (es *entries) admit(e *entry) {
	es.enlist(e)
	es.size += e.size()
	if e.kept&keptLogged == 0 {
		es.changes.note(e)
	}
}

// dismiss takes e, which must be unlocked, not waiting and not scheduled, out of the queue.
func (es *entries) dismiss(e *entry) {
	es.strike(e)
	es.size -= e.size()
	if e.state == Deferred {
		es.deferred--
	}
}

// drop is dismiss for good.
func (es *entries) drop(e *entry) {
	es.dismiss(e)
	es.quota.add(-e.size())
	es.changes.noteGone(e)
}

// setExtra replaces what e has beyond the ordinary and keeps the sizes right.
func (es *entries) setExtra(e *entry, x *extra) {
	grown := x.size() - e.more().size()
	e.extra = x
	es.changes.note(e)
	es.size += grown
	es.quota.add(grown)
}

// find is the entries with these numbers that are fit, and the other numbers. A number that is
// named again counts as one that is not there.
func (es *entries) find(seqs []int64, fit func(*entry) bool) (found []*entry, missing []int64) {
	found = make([]*entry, 0, len(seqs))
	seen := make(map[int64]struct{}, len(seqs))
	for _, seq := range seqs {
		_, twice := seen[seq]
		seen[seq] = struct{}{}
		if e := es.byNumber.get(seq); e != nil && !twice && fit(e) {
			found = append(found, e)
		} else {
			missing = append(missing, seq)
		}
	}
	return found, missing
}

// peek appends views of up to max entries of x, from sequence number seq upwards, or downwards where
// back is true. It stops where as much content is away as is read in one go.
func (es *entries) peek(dst []View, x *index, back bool, seq int64, max int, has contents) (views []View, missing []int64) {
	end := len(dst) + max
	r := request{has: has}
	add := func(e *entry) bool {
		dst = append(dst, es.view(e))
		has.fill(&dst[len(dst)-1].Message, e)
		return r.add(e) && len(dst) < end
	}
	if back {
		x.descend(seq, add)
	} else {
		x.ascend(seq, add)
	}
	return dst, r.missing
}

func (es *entries) view(e *entry) View {
	x := e.more()
	enqueued := e.enqueuedAt.time()
	if es.cfg.Quirks.Has(quirk.StampsSeconds) {
		enqueued = enqueued.Truncate(time.Second)
	}
	return View{
		Message: Message{
			Body:                 e.body,
			MessageID:            e.messageID,
			SessionID:            e.sessionID,
			HasSession:           e.marks&markSession != 0,
			TTL:                  e.ttl,
			ScheduledEnqueueTime: e.scheduledAt.time(),

			EnqueuedSequenceNumber:     x.enqueuedSeq,
			Activated:                  e.marks&markActivated != 0,
			Hops:                       x.hops,
			DeadLetterReason:           x.reason,
			DeadLetterErrorDescription: x.description,
			DeadLetterSource:           x.source,
			Properties:                 x.properties,
		},
		SequenceNumber:   e.seq,
		EnqueuedTime:     enqueued,
		ExpiresAt:        e.expiresAt.time(),
		DeliveryCount:    int(e.count),
		State:            e.state,
		EntityTTL:        e.marks&markEntityTTL != 0,
		Locked:           e.locked,
		LockedUntil:      e.lockedUntil.time(),
		DeadLetteredTime: x.deadLetteredAt.time(),
	}
}

// delivery is e as it is given to somebody.
func (es *entries) delivery(e *entry, mode Mode, has contents) Delivery {
	d := Delivery{View: es.view(e), LockToken: e.token}
	if has.fill(&d.Message, e); mode != PeekLock && e.away() { // the log has it no more
		e.body, e.messageID = d.Body, d.MessageID
	}
	return d
}
