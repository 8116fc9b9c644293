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
	// writeTimeout bounds one transfer, or one round of cancels, retries included.
	writeTimeout = 30 * time.Second
)

// startLocked starts a transfer with all that is pending, unless there are enough in flight.
func (s *Scheduler) startLocked(l *lane) {
	if len(l.pending) == 0 || l.inFlight == maxTransfers {
		return
	}
	tickets := l.pending
	l.pending = nil
	l.inFlight++
	s.running.Go(func() { s.run(l, tickets) })
}

// run writes the companions of tickets, and has those leave that have come meanwhile.
func (s *Scheduler) run(l *lane, tickets []*ticket) {
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
		n, err := s.send(l, b, groups, sharedSize)
		if n > 1 && errors.Is(err, link.ErrTooLarge) {
			n, err = s.send(l, b, groups, 0) // the queue takes less than others; then each goes alone
		}
		if s.cfg.Written != nil {
			s.cfg.Written(n, err)
		}
		if s.cfg.Store == nil {
			s.cfg.Operations.Add(operations.Schedule, n)
		}
		for _, g := range groups[:n] {
			g.end(err)
		}
		if err == nil {
			s.noteWritten(l, groups[:n])
		}
		groups = groups[n:]
	}
}

// noteWritten notes that the companions of groups are on the monitor queue.
func (s *Scheduler) noteWritten(l *lane, groups []*group) {
	s.mu.Lock()
	for _, g := range groups {
		if g.c.Due.After(l.lastDue) {
			l.lastDue = g.c.Due
		}
	}
	s.mu.Unlock()
	for _, g := range groups {
		if g.composed {
			s.index.Carried(g.id, g.c.Entity, g.c.Due, indexed(g.c.Entity, g.c.References))
		}
	}
}

// LastDue returns when the last of the companions that were written to a monitor queue is due, by
// the broker's clock; the zero time means that none was written.
func (s *Scheduler) LastDue(queue string) (due time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.lanes {
		if l.queue == queue {
			due = l.lastDue
		}
	}
	return due
}

// send sends the first groups as one transfer, as many as have at most size bytes together, and one
// in any case. n is how many those are.
func (s *Scheduler) send(l *lane, b *link.Batch, groups []*group, size int) (n int, err error) {
	defer b.Reset()
	var items []redisstore.Item
	for sum := 0; n < len(groups); n++ {
		item, err := groups[n].encode()
		sum += len(item.Body)
		if n > 0 && (err != nil || sum > size) {
			break // an error concerns nobody before
		}
		if err != nil {
			return 1, err
		}
		if s.cfg.Store != nil {
			items = append(items, item)
			continue
		}
		b.Add(&link.ScheduledMessage{
			MessageID:   item.ID,
			Subject:     item.Subject,
			ContentType: item.ContentType,
			Due:         item.Due,
			Body:        item.Body,
		})
		sum = b.Size()
	}
	// The callers' contexts do not reach the transfer: one caller that gives up must not
	// take the others' companions with it.
	ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
	defer cancel()
	if s.cfg.Store == nil {
		err = l.companions.Send(ctx, b)
	} else {
		err = s.cfg.Store.Put(ctx, items)
	}
	if err != nil {
		return n, fmt.Errorf("scheduler: write to %s: %w", s.destination(l), err)
	}
	return n, nil
}

func (s *Scheduler) destination(l *lane) string {
	if s.cfg.Store != nil {
		return "the companion store"
	}
	return "monitor queue " + l.queue
}

// encode is the message of the group. It keeps the id of the companion.
func (g *group) encode() (redisstore.Item, error) {
	if n := g.note; n != nil {
		return redisstore.Item{
			ID:          n.ID,
			Due:         n.Due.UTC(),
			ContentType: n.ContentType,
			Subject:     n.Subject,
			Body:        n.Body,
			Note:        true,
		}, nil
	}
	body, id, err := g.c.Marshal()
	g.id, _ = index.ParseID(id) // it has just been made
	return redisstore.Item{
		ID:          id,
		Due:         g.c.Due.UTC(),
		ContentType: contentType,
		Subject:     g.c.kind(),
		Body:        body,
	}, err
}
