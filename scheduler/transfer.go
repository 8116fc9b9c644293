// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"overdue/internal/operations"
	"overdue/internal/redisstore"
	"overdue/internal/servicebus/link"
	"overdue/scheduler/index"
)

const (
	// maxTransfers bounds the transfers in flight to one monitor queue, and with them what a queue
	// without an answer makes a process keep in memory twice. While so many are in flight, companions
	// gather for the next: the more share a transfer, the less each of them costs. With four of them,
	// a companion waits for a third of a round trip at most on average.
	maxTransfers = 4
	// sharedSize is how many bytes companions may have that share a transfer: every queue takes
	// that many.
	sharedSize = 128 << 10
)

// startLocked starts a transfer with all that is pending, unless there are enough in flight.
func (s *Scheduler) startLocked(l *lane) {
	if len(l.pending) == 0 || l.inFlight == maxTransfers {
		return
	}
	tickets := l.pending
	l.pending = nil
	l.inFlight++
	s.running.Add(1)
	go s.run(l, tickets)
}

// run writes the companions of tickets, and has those leave that have come meanwhile.
func (s *Scheduler) run(l *lane, tickets []*ticket) {
	defer s.running.Done()
	b := batches.Get().(*link.Batch)
	defer batches.Put(b)
	s.write(l, b, compose(tickets))
	s.mu.Lock()
	defer s.mu.Unlock()
	l.inFlight--
	s.startLocked(l)
}

// batches are the buffers of transfers that are over.
var batches = sync.Pool{New: func() any { return &link.Batch{} }}

// write sends the groups in as few transfers as their sizes allow.
func (s *Scheduler) write(l *lane, b *link.Batch, groups []*group) {
	for len(groups) > 0 {
		n, err := s.send(l, b, groups)
		if s.cfg.Written != nil {
			s.cfg.Written(n, err)
		}
		if s.cfg.Store == nil {
			s.cfg.Operations.Add(operations.Schedule, n)
		}
		for _, g := range groups[:n] {
			g.settle(err)
		}
		if err == nil {
			l.noteDue(groups[:n])
			s.carried(groups[:n])
		}
		groups = groups[n:]
	}
}

// noteDue keeps when the last companion that was written is due.
func (l *lane) noteDue(groups []*group) {
	for _, g := range groups {
		due := g.c.Due.UnixNano()
		for last := l.lastDue.Load(); due > last && !l.lastDue.CompareAndSwap(last, due); last = l.lastDue.Load() {
		}
	}
}

// LastDue returns when the last of the companions that were written to a monitor queue is due, by
// the broker's clock; the Unix epoch means that none was written.
func (s *Scheduler) LastDue(queue string) time.Time {
	for _, l := range s.lanes {
		if l.queue == queue {
			return time.Unix(0, l.lastDue.Load())
		}
	}
	return time.Unix(0, 0)
}

// send sends the first n groups, n ≥ 1, as one transfer.
func (s *Scheduler) send(l *lane, b *link.Batch, groups []*group) (n int, err error) {
	n, err = s.sendUpTo(l, b, groups, sharedSize)
	if n > 1 && errors.Is(err, link.ErrTooLarge) {
		return s.sendUpTo(l, b, groups, 0) // the queue takes less than others; then each goes alone
	}
	return n, err
}

// sendUpTo sends the first groups, as many as have at most size bytes together, and one in any
// case.
func (s *Scheduler) sendUpTo(l *lane, b *link.Batch, groups []*group, size int) (n int, err error) {
	defer b.Reset()
	var items []redisstore.Item
	for sum := 0; n < len(groups); n++ {
		g := groups[n]
		body, id, err := g.marshal()
		sum += len(body)
		if n > 0 && (err != nil || sum > size) {
			break // an error concerns nobody before
		}
		if err != nil {
			return 1, err
		}
		if s.cfg.Store == nil {
			b.Add(&link.ScheduledMessage{MessageID: id, Subject: g.c.kind(), ContentType: contentType, Due: g.c.Due, Body: body})
			sum = b.Size()
		} else {
			items = append(items, redisstore.Item{ID: id, Due: g.c.Due.UTC(), ContentType: contentType, Subject: g.c.kind(), Body: body})
		}
	}
	// The callers' contexts do not reach the transfer: one caller that gives up must not
	// take the others' companions with it.
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.WriteTimeout)
	defer cancel()
	if s.cfg.Store != nil {
		if err := s.cfg.Store.Put(ctx, items); err != nil {
			return n, fmt.Errorf("scheduler: write to the companion store: %w", err)
		}
		return n, nil
	}
	if err := l.companions.Send(ctx, b); err != nil {
		return n, fmt.Errorf("scheduler: write to monitor queue %s: %w", l.queue, err)
	}
	return n, nil
}

// marshal is [Companion.Marshal] of the group's companion, whose id it keeps.
func (g *group) marshal() (body []byte, id string, err error) {
	if body, id, err = g.c.Marshal(); err == nil {
		g.id, _ = index.ParseID(id) // it has just been made
	}
	return body, id, err
}
