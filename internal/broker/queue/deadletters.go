// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"time"

	"overdue/internal/broker/quirk"
)

// Reasons and descriptions that the queue itself gives, in the words of Service Bus where they are
// known.
const (
	ReasonExpired      = "TTLExpiredException"
	descriptionExpired = "The message expired and was dead lettered."
	ReasonMaxDelivery  = "MaxDeliveryCountExceeded"

	// Of what reaches a queue with sessions by a topic or a forward.
	ReasonNoSession      = "Session id is null."
	DescriptionNoSession = "Session enabled entity doesn't allow a message whose session identifier is null."
)

// lateness is how long a dead letter cannot be found, with quirk.DeadLettersLate.
const lateness = 500 * time.Millisecond

// deadLetters is the messages on their way from a queue to its dead-letter queue.
type deadLetters struct {
	cfg     *settings
	changes *changes
	entries *entries
	numbers *numbers
	waiting *waiting
	dying   []*entry // leave this queue, moved before the mutex is given up
	fate    *extra   // why the last of them dies, see add
	late    []*entry // have come to this dead-letter queue and cannot be found yet, see quirk.DeadLettersLate
}

// add takes e, which must be unlocked and not waiting, out of the queue, writes down why, and leaves
// it to bury. Those of one critical section that die alike share what is written: of a wave that
// would be most of what moving it costs.
func (d *deadLetters) add(e *entry, reason, description string) {
	d.entries.dismiss(e)
	before := e.more().size()
	switch {
	case e.extra != nil:
		x := *e.extra
		x.reason, x.description = reason, description
		e.extra = &x
	case d.fate == nil || d.fate.reason != reason || d.fate.description != description:
		d.fate = &extra{reason: reason, description: description, deadLetteredAt: unset}
		fallthrough
	default:
		e.extra = d.fate
	}
	d.entries.quota.add(e.extra.size() - before)
	d.changes.note(e)
	d.dying = append(d.dying, e)
}

// bury moves those that die to the dead-letter queue, with one lock of its mutex. The mutex of their
// own queue is still held, so nobody sees a message in neither place or in both. The log gets the
// changes before anybody can do more.
func (d *deadLetters) bury(dead *Queue, now instant) {
	d.fate = nil
	if len(d.dying) > 0 {
		if tally := d.cfg.DeadLetters; tally != nil {
			tally.add(d.dying)
		}
		dead.receiveDead(d.dying, d.changes, now)
		d.dying = nil
	}
}

// receiveDead takes what another queue has dead-lettered. The sequence numbers are the other queue's, so
// they may arrive in any order. theirs is where the other queue has noted them. When q is closed, the
// messages are gone.
func (q *Queue) receiveDead(es []*entry, theirs *changes, now instant) {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		for _, e := range es {
			q.quota.add(-e.size())
		}
		return
	}
	q.agenda.catchUp(now)
	for _, e := range es {
		q.deadLetters.arrive(e, now)
	}
	theirs.report()
	q.leave(now)
}

// arrive takes a message that another queue has dead-lettered.
func (d *deadLetters) arrive(e *entry, now instant) {
	e.extra.deadLetteredAt = now
	e.kept |= keptDead
	if d.cfg.Quirks.Has(quirk.DeadLettersLate) {
		d.late = append(d.late, e)
		return
	}
	d.admit(e, now)
}

// admitLate makes dead letters visible whose time has come.
func (d *deadLetters) admitLate(now instant) {
	for d.next() <= now {
		d.admit(d.late[0], now)
		d.late = d.late[1:]
	}
}

func (d *deadLetters) admit(e *entry, now instant) {
	e.state = Active
	if d.cfg.Quirks.Has(quirk.DeadLettersRestamped) {
		e.enqueuedAt = now
	}
	if d.cfg.Quirks.Has(quirk.DeadLettersRenumbered) {
		e.seq = d.numbers.nextArrival()
	}
	d.entries.admit(e)
	d.waiting.add(e)
}

// next is when the first of the late is to be found.
func (d *deadLetters) next() instant {
	if len(d.late) == 0 {
		return never
	}
	return d.late[0].extra.deadLetteredAt.add(lateness)
}
