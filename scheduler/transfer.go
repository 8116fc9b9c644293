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
	"overdue/internal/servicebus/duration"
	"overdue/internal/servicebus/link"
	"overdue/scheduler/index"
)

const (
	// maxTransfers bounds the transfers in flight to one monitor queue, and with them what a queue
	// without an answer makes a process keep in memory twice. While so many are in flight, companions
	// gather for the next: the more share a transfer, the less each of them costs. With four of them,
	// a companion waits for a third of a round trip at most on average.
	maxTransfers = 4
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
		n, err := s.send(l, b, groups, maxBody/2) // which every queue takes
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

func (s *Scheduler) noteWritten(l *lane, groups []*group) {
	s.mu.Lock()
	for _, g := range groups {
		l.lastDue = duration.Later(l.lastDue, g.c.Due)
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
	destination := "the companion store"
	if s.cfg.Store != nil {
		err = s.cfg.Store.Put(ctx, items)
	} else {
		destination = "monitor queue " + l.queue
		err = l.companions.Send(ctx, b)
	}
	if err != nil {
		return n, fmt.Errorf("scheduler: write to %s: %w", destination, err)
	}
	return n, nil
}

// encode is the message of the group. It keeps the id of the companion.
func (g *group) encode() (redisstore.Item, error) {
	if g.note != nil {
		n := *g.note
		n.Due, n.Note = n.Due.UTC(), true
		return n, nil
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

// group is one companion, or note, to be written and the callers who wait for it.
type group struct {
	c       Companion
	note    *Note
	id      index.ID // of the companion, once it is encoded
	tickets []*ticket
	// composed: it is the first that is written for its references. Those that are written again are
	// not cancelled: they carry what became of a message.
	composed bool
}

// compose turns the tickets of one transfer into companions. References of one entity with
// deadlines in one slot share one, and so do slots that end at one instant. References that are
// written again and are due in the same second share the companion of the first of them. A ticket
// whose references fall into several slots is done when all of its companions are.
func compose(tickets []*ticket) []*group {
	type key struct {
		entity  string
		due     int64
		slot    bool
		again   bool // they are written again, due in that second
		attempt int  // of what is written again
	}
	var groups []*group
	shared := map[key]*group{}
	// share returns the group with a key that has room for n more, or begins one.
	share := func(k key, due time.Time, n int) *group {
		g := shared[k]
		if g == nil || g.size()+n > groupSize {
			g = &group{c: Companion{Entity: k.entity, Due: due}, composed: !k.slot}
			shared[k] = g
			groups = append(groups, g)
		}
		return g
	}
	for _, t := range tickets {
		c := &t.c
		switch {
		case c.IsSlot() && c.Attempt == 0 && c.Due.Equal(slotDue(c.SlotEnd)):
			g := share(key{entity: c.Entity, due: c.Due.UnixNano(), slot: true}, c.Due, len(c.Lives)+len(c.Spans))
			g.c.SlotEnd, g.c.SlotLength = c.SlotEnd, c.SlotLength
			g.c.Lives, g.c.Spans, g.c.Defaults = append(g.c.Lives, c.Lives...), append(g.c.Spans, c.Spans...), append(g.c.Defaults, c.Defaults...)
			g.join(t)
		case !c.IsSlot() && !c.Due.IsZero():
			k := key{
				entity:  c.Entity,
				due:     c.Due.Unix(),
				again:   true,
				attempt: c.Attempt,
			}
			g := share(k, c.Due, len(c.References))
			g.composed = false
			g.c.Attempt = c.Attempt
			if c.Due.Before(g.c.Due) {
				g.c.Due = c.Due
			}
			g.c.References = append(g.c.References, c.References...)
			g.join(t)
		case t.note != nil || c.IsSlot():
			g := &group{c: t.c, note: t.note}
			groups = append(groups, g)
			g.join(t)
		default:
			for i := range c.References {
				r := &c.References[i]
				due := r.dueAt()
				g := share(key{entity: c.Entity, due: due.UnixNano()}, due, 1)
				if g.c.References == nil {
					g.c.References = make([]Reference, 0, min(len(c.References)-i, groupSize))
				}
				g.c.References = append(g.c.References, *r)
				g.join(t)
			}
		}
	}
	return groups
}

// size is for how many messages or times to live the companion stands.
func (g *group) size() int { return len(g.c.References) + len(g.c.Lives) + len(g.c.Spans) }

// join makes t wait for g. A ticket's references are added in one go, so that it is
// enough to compare it with the last one that joined.
func (g *group) join(t *ticket) {
	if n := len(g.tickets); n > 0 && g.tickets[n-1] == t {
		return
	}
	g.tickets = append(g.tickets, t)
	t.open.Add(1)
}

func (g *group) end(err error) {
	for _, t := range g.tickets {
		t.end(err)
	}
}

// dueAt is when the message has to be looked at first, by what is known when it is sent.
func (r *Reference) dueAt() time.Time {
	at := r.Deadline.Add(-r.Ahead)
	if at.Sub(r.Sent) < shortLife || r.Within > 0 && r.Within-r.Ahead < shortLife {
		return roundUp(at, shortSlot)
	}
	return slotDue(slotEnd(at))
}

// slotEnd is the end of the slot that t falls into. A slot's own end belongs to it.
func slotEnd(t time.Time) time.Time { return roundUp(t, slot) }

// slotDue is when the companion of the slot that ends there becomes due.
func slotDue(end time.Time) time.Time { return end.Add(-slot - slotLead) }

func roundUp(t time.Time, to time.Duration) time.Time {
	return t.Add(to - 1).Truncate(to)
}

// Compose turns a companion that is asked for into those to write: references with deadlines in one
// slot share one.
func Compose(asked Companion) (written []Companion) {
	for _, g := range compose([]*ticket{{c: asked}}) {
		written = append(written, g.c)
	}
	return written
}
