// SPDX-License-Identifier: Apache-2.0

package queue

import "slices"

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
	duplicate, _ := q.room(ms, now, func(n int64) bool { q.quota.add(n); return true })
	q.store(ms, duplicate, nil, now)
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
	if err := q.refusal(ms); err != nil {
		return 0, nil, err
	}
	duplicate, ok := q.room(ms, now, q.quota.take)
	if !ok {
		return 0, nil, ErrFull
	}
	if all {
		seqs = q.numbers.nextOf(ms)
	}
	return q.store(ms, duplicate, seqs, now), seqs, nil
}

// refusal is why the queue does not take these messages in one go. It is ErrSessionRequired when
// the queue requires sessions and a message has none. It is ErrDistinctKeys or ErrDistinctIDs when
// the queue is partitioned and they do not all belong together.
func (q *Queue) refusal(ms []Message) error {
	apart := func(m Message) bool { return q.numbers.routing(&m) != q.numbers.routing(&ms[0]) }
	switch {
	case q.sessions != nil && slices.ContainsFunc(ms, func(m Message) bool { return !m.HasSession }):
		return ErrSessionRequired
	case !q.cfg.Partitioned || !slices.ContainsFunc(ms, apart):
		return nil
	case q.cfg.RequiresDuplicateDetection:
		return ErrDistinctIDs
	}
	return ErrDistinctKeys
}

// room finds out which of ms are duplicates, and asks take for the bytes that the others need; when
// it refuses, they were not here.
func (q *Queue) room(ms []Message, now instant, take func(int64) bool) (duplicate []bool, ok bool) {
	duplicate, need, added := q.history.addAll(ms, now)
	for i := range ms {
		if duplicate == nil || !duplicate[i] {
			need += ms[i].size()
		}
	}
	if !take(need) {
		q.history.undo(added)
		return nil, false
	}
	return duplicate, true
}

// store stores those of ms that are no duplicates, under seqs, or under new numbers when that is
// nil. It returns the first of them.
func (q *Queue) store(ms []Message, duplicate []bool, seqs []int64, now instant) (first int64) {
	first = q.numbers.last + 1
	for i := range ms {
		var seq int64
		if seqs != nil {
			seq = seqs[i]
		} else {
			seq = q.numbers.next(&ms[i])
		}
		if i == 0 {
			first = seq
		}
		if duplicate == nil || !duplicate[i] {
			e := newEntry(&ms[i], seq, &q.cfg, now)
			if q.sessions != nil && !e.hasSession {
				q.entries.admit(e)
				e.enqueue(now)
				q.deadLetters.add(e, ReasonNoSession, DescriptionNoSession)
				continue
			}
			q.insert(e, now)
		}
	}
	return first
}

// insert starts e on its way: to the schedule or to those who wait.
func (q *Queue) insert(e *entry, now instant) {
	q.entries.admit(e)
	if e.scheduledAt > now {
		q.schedule.add(e)
		return
	}
	e.enqueue(now)
	q.waiting.add(e)
}
