// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"slices"
	"time"
)

// Schedule is Send for a caller who wants the sequence numbers, to cancel by them. A number is good
// until the message is activated, which gives it a new one. A message whose ScheduledEnqueueTime is
// not in the future is enqueued at once, and its number is that of an active message. That of a
// duplicate leads nowhere.
func (q *Queue) Schedule(ms ...Message) ([]int64, error) {
	_, seqs, err := q.send(ms, true)
	return seqs, err
}

// CancelScheduled removes scheduled messages, all or none. Errors: ErrMessageNotFound when one of
// them is not scheduled, or no longer, or named twice; ErrBeingCanceled; ErrClosed.
func (q *Queue) CancelScheduled(seqs ...int64) error {
	now, err := q.enter()
	if err != nil {
		return err
	}
	defer q.leave(now)
	es, err := q.pending(seqs)
	for _, e := range es {
		q.schedule.remove(e)
		q.entries.drop(e)
	}
	return err
}

// pending is the messages that wait for their time, when that can be said of each and nobody is
// about to cancel one.
func (q *Queue) pending(seqs []int64) ([]*entry, error) {
	es, missing := q.entries.find(seqs, func(e *entry) bool { return e.state == Scheduled })
	if missing != nil {
		return nil, &NumberError{ErrMessageNotFound, missing}
	}
	if i := slices.IndexFunc(es, func(e *entry) bool { return e.held }); i >= 0 {
		return nil, &NumberError{ErrBeingCanceled, seqs[i : i+1]}
	}
	return es, nil
}

// LastActivation is when a scheduled message last became active, by the broker's clock; zero:
// never.
func (q *Queue) LastActivation() time.Time {
	now, err := q.enter()
	if err != nil {
		return time.Time{}
	}
	defer q.leave(now)
	return q.activated.time()
}

// activate enqueues what is due, in the order of the schedule. Activation is a new enqueueing: a
// new sequence number, a new enqueued time, and the time to live runs from here. The rest of a
// large wave is left to the timer, or to the next caller.
func (q *Queue) activate(now instant) {
	for n := 0; n < wave && q.schedule.next() <= now; n++ {
		e, _ := q.schedule.min()
		q.activated = now
		q.schedule.remove(e)
		q.entries.strike(e)
		e.seq += q.numbers.nextArrival() - arrival(e.seq) // in the same partition
		q.entries.enlist(e)
		e.activated = true
		e.enqueue(now)
		q.waiting.add(e)
	}
}
