// SPDX-License-Identifier: Apache-2.0

package queue

// Send stores all messages or none. Their sequence numbers are consecutive, first is that of the first. Those with a
// ScheduledEnqueueTime in the future go to the schedule. Errors: ErrFull, ErrClosed, ErrDeadLetterQueue.
func (q *Queue) Send(ms ...Message) (first int64, err error) {
	if q.frozen() {
		return 0, ErrDeadLetterQueue
	}
	now, err := q.enter()
	if err != nil {
		return 0, err
	}
	defer q.leave(now)
	return q.store(ms, now)
}

// store is Send with the mutex held.
func (q *Queue) store(ms []Message, now instant) (first int64, err error) {
	var need int64
	for i := range ms {
		need += entryOverhead + int64(len(ms[i].Body)+len(ms[i].MessageID)+len(ms[i].SessionID))
	}
	// Only the holder of the queue's mutex adds to used, so that it cannot grow between the two lines.
	if limit := q.cfg.MaxSize; limit > 0 && q.used.Load()+need > limit {
		return 0, ErrFull
	}
	q.used.Add(need)
	first = q.lastSeq + 1
	for i := range ms {
		q.lastSeq++
		e := q.newEntry(&ms[i], q.lastSeq, now)
		q.admit(e)
		if e.scheduledAt > now {
			e.state = Scheduled
			q.schedule.push(e, int64(e.scheduledAt))
			continue
		}
		e.enqueue(now)
		q.wait(e)
	}
	return first, nil
}
