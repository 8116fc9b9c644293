// SPDX-License-Identifier: Apache-2.0

package queue

// PassDead is Pass for messages that nobody can receive from here: they are numbered like the
// others and are in the dead-letter queue at once. Errors: ErrDeadLetterQueue, ErrClosed.
func (q *Queue) PassDead(reason, description string, ms ...Message) error {
	if q.cfg.frozen {
		return ErrDeadLetterQueue
	}
	now, err := q.enter()
	if err != nil {
		return err
	}
	defer q.leave(now)
	for i := range ms {
		e := newEntry(&ms[i], q.numbers.next(&ms[i]), &q.cfg, now)
		e.enqueue(now)
		q.quota.add(e.size())
		q.entries.admit(e)
		q.deadLetters.add(e, reason, description)
	}
	return nil
}
