// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"slices"
	"time"

	"overdue/internal/broker/quirk"
)

// schedule is the scheduled messages, and makes them active when they are due.
type schedule struct {
	cfg         *settings
	entries     *entries
	numbers     *numbers
	waiting     *waiting
	changes     *changes
	heap        entryHeap // by scheduledAt
	held        int       // scheduled, and not in heap, see HoldScheduled
	activatedAt instant   // when a scheduled message was last activated, unset: never
}

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
	es, err := q.schedule.pending(seqs)
	for _, e := range es {
		q.schedule.heap.remove(e)
		q.entries.drop(e)
	}
	return err
}

// LastActivation is when a scheduled message last became active, by the broker's clock; zero:
// never.
func (q *Queue) LastActivation() time.Time {
	now, err := q.enter()
	if err != nil {
		return time.Time{}
	}
	defer q.leave(now)
	return q.schedule.activatedAt.time()
}

// lateStep is a tenth of how late a scheduled message can be, with quirk.ScheduleLate.
const lateStep = 100 * time.Millisecond

// add schedules e. With quirk.ScheduleLate, a message is late by one to ten steps, which its
// sequence number decides.
func (s *schedule) add(e *entry) {
	e.state = Scheduled
	due := e.scheduledAt
	if s.cfg.Quirks.Has(quirk.ScheduleLate) {
		due = due.add(time.Duration(1+arrival(e.seq)*7%10) * lateStep)
	}
	s.heap.push(e, int64(due))
}

// hold keeps e from being activated.
func (s *schedule) hold(e *entry) {
	s.heap.remove(e)
	e.held = true
	s.held++
}

// release is the opposite of hold.
func (s *schedule) release(e *entry) {
	e.held = false
	s.held--
	s.add(e)
}

func (s *schedule) len() int { return s.heap.len() + s.held }

// pending is the messages that wait for their time, when that can be said of each and nobody is
// about to cancel one.
func (s *schedule) pending(seqs []int64) ([]*entry, error) {
	es, missing := s.entries.find(seqs, func(e *entry) bool { return e.state == Scheduled })
	if missing != nil {
		return nil, &NumberError{ErrMessageNotFound, missing}
	}
	if i := slices.IndexFunc(es, func(e *entry) bool { return e.held }); i >= 0 {
		return nil, &NumberError{ErrBeingCanceled, seqs[i : i+1]}
	}
	return es, nil
}

// activate enqueues what is due, in the order of the schedule. Activation is a new enqueueing: a
// new sequence number, a new enqueued time, and the time to live runs from here. The rest of a
// large wave is left to the timer, or to the next caller.
func (s *schedule) activate(now instant) {
	for n := 0; n < wave && s.heap.next() <= now; n++ {
		e, _ := s.heap.min()
		s.activatedAt = now
		s.heap.remove(e)
		s.entries.strike(e)
		e.seq += s.numbers.nextArrival() - arrival(e.seq) // in the same partition
		s.entries.enlist(e)
		e.marks |= markActivated
		e.enqueue(now)
		s.changes.note(e)
		s.waiting.add(e)
	}
}
