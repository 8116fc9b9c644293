// SPDX-License-Identifier: Apache-2.0

package queue

import "fmt"

// Reasons and descriptions that the queue itself gives, in the words of Service Bus where they are
// known.
const (
	reasonExpired      = "TTLExpiredException"
	descriptionExpired = "The message expired and was dead lettered."
	reasonMaxDelivery  = "MaxDeliveryCountExceeded"

	// Of what reaches a queue with sessions by a topic or a forward.
	ReasonNoSession      = "Session id is null."
	DescriptionNoSession = "Session enabled entity doesn't allow a message whose session identifier is null."
)

// deadLetter takes e, which must be unlocked and not waiting, out of the queue and leaves it to
// bury.
func (q *Queue) deadLetter(e *entry, reason, description string) {
	q.condemn(e, reason, description)
	q.dying = append(q.dying, e)
}

// condemn takes e out of the queue and writes down why. Those of one critical section that die
// alike share what is written: of a wave that would be most of what moving it costs.
func (q *Queue) condemn(e *entry, reason, description string) {
	q.entries.dismiss(e)
	if e.extra == nil {
		if q.fate == nil || q.fate.reason != reason || q.fate.description != description {
			q.fate = &extra{reason: reason, description: description, deadLetteredAt: unset}
		}
		e.extra = q.fate
		q.quota.add(e.extra.size())
		return
	}
	x := *e.more()
	before := x.size()
	x.reason, x.description = reason, description
	q.quota.add(x.size() - before)
	e.extra = &x
}

// bury moves expired and dead-lettered entries to the dead-letter queue, with one lock of its mutex.
// The queue's own mutex is still held, so nobody sees a message in neither place or in both.
func (q *Queue) bury(now instant) {
	q.fate = nil
	if len(q.dying) > 0 {
		q.dead.inter(q.dying, now)
		q.dying = nil
	}
}

// inter takes what another queue has dead-lettered. The sequence numbers are the other queue's, so
// they may arrive in any order. When q is closed, the messages are gone.
func (q *Queue) inter(es []*entry, now instant) {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		for _, e := range es {
			q.quota.add(-e.size())
		}
		return
	}
	q.catchUp(now)
	for _, e := range es {
		q.arrive(e, now)
	}
	q.leave(now)
}

func (q *Queue) maxDeliveryDescription() string {
	return fmt.Sprintf("Message could not be consumed after %d delivery attempts.", q.cfg.MaxDeliveryCount)
}
