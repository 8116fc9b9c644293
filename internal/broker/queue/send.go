// SPDX-License-Identifier: Apache-2.0

package queue

// Send stores all messages or none. Their sequence numbers are consecutive, first is that of the
// first; but see Config.Partitioned. Those with a ScheduledEnqueueTime in the future go to the
// schedule. A duplicate uses up a number and is dropped. Errors: ErrFull, ErrClosed,
// ErrDeadLetterQueue; those of refusal.
func (q *Queue) Send(ms ...Message) (first int64, err error) {
	first, _, err = q.send(ms, false)
	return first, err
}

// Pass is Send for messages that a topic has admitted for all its subscriptions. They count towards
// the quota, but are not refused for it. Those without a session that the queue requires are
// dead-lettered.
func (q *Queue) Pass(ms ...Message) error {
	if q.cfg.frozen {
		return ErrDeadLetterQueue
	}
	now, err := q.enter()
	if err != nil {
		return err
	}
	defer q.leave(now)
	duplicate, _ := q.intake.room(ms, now, func(n int64) bool { q.quota.add(n); return true })
	q.intake.store(ms, duplicate, nil, now)
	return nil
}

// send is Send, or Schedule when all numbers are asked for.
func (q *Queue) send(ms []Message, all bool) (first int64, seqs []int64, err error) {
	if q.cfg.frozen {
		return 0, nil, ErrDeadLetterQueue
	}
	now, err := q.enter()
	if err != nil {
		return 0, nil, err
	}
	defer q.leave(now)
	if err := q.intake.refusal(ms); err != nil {
		return 0, nil, err
	}
	duplicate, ok := q.intake.room(ms, now, q.quota.take)
	if !ok {
		return 0, nil, ErrFull
	}
	if all {
		seqs = q.numbers.nextOf(ms)
	}
	return q.intake.store(ms, duplicate, seqs, now), seqs, nil
}

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
