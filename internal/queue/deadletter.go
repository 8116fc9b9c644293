// SPDX-License-Identifier: Apache-2.0

package queue

import "fmt"

// Reasons and descriptions that the queue itself gives, in the words of Service Bus where they are known.
const (
	reasonExpired      = "TTLExpiredException"
	descriptionExpired = "The message expired and was dead lettered."
	reasonMaxDelivery  = "MaxDeliveryCountExceeded"
)

// deadLetter takes e, which must be unlocked and not waiting, out of the queue and leaves it to bury.
func (q *Queue) deadLetter(e *entry, reason, description string) {
	q.dismiss(e)
	x := *e.more()
	before := x.size
	x.reason, x.description = reason, description
	x.size = x.propertiesSize + int64(len(reason)+len(description))
	q.used.Add(x.size - before)
	e.extra = &x
	q.dying = append(q.dying, e)
}

// bury moves the dead to the dead-letter queue, all with one lock of its mutex. The queue's own mutex is still held,
// so nobody sees a message in neither place or in both.
func (q *Queue) bury(now instant) {
	if len(q.dying) == 0 {
		return
	}
	if d := q.dead; !d.inter(q.dying, now) {
		for _, e := range q.dying {
			q.used.Add(-e.size())
		}
	}
	q.dying = nil
}

// inter takes what another queue has dead-lettered. The sequence numbers are the other queue's, so they may arrive in
// any order. It reports false when q is closed.
func (q *Queue) inter(es []*entry, now instant) bool {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return false
	}
	q.catchUp(now)
	for _, e := range es {
		e.state = Active
		e.extra.deadLetteredAt = now
		q.admit(e)
		q.wait(e)
	}
	q.leave(now)
	return true
}

func (q *Queue) maxDeliveryDescription() string {
	return fmt.Sprintf("Message could not be consumed after %d delivery attempts.", q.cfg.MaxDeliveryCount)
}
