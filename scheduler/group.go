// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"slices"
	"time"

	"overdue/scheduler/index"
)

// group is one companion to be written and the callers who wait for it.
type group struct {
	c       Companion
	id      index.ID // once it is encoded
	tickets []*ticket
	// composed: it is the first that is written for its references. Those that are written again are
	// not cancelled: they carry what became of a message.
	composed bool
}

// compose turns the tickets of one transfer into companions: references of one entity
// with deadlines in one slot share one. A ticket whose references fall into several
// slots is done when all of its companions are.
func compose(tickets []*ticket) []*group {
	type key struct {
		entity string
		due    int64
		second bool // its references need another version: what cannot be read keeps nobody else's deadline from being
	}
	var groups []*group
	slots := map[key]*group{}
	shared := map[key]*group{}
	for _, t := range tickets {
		if t.c.IsSlot() {
			k := key{t.c.Entity, t.c.SlotEnd.UnixNano(), false}
			g := slots[k]
			if g == nil || !t.c.Due.Equal(g.c.Due) || g.stands()+len(t.c.Lives)+len(t.c.Spans) > groupSize {
				g = &group{c: t.c}
				slots[k] = g
				groups = append(groups, g)
			} else {
				g.c.Lives, g.c.Spans = slices.Concat(g.c.Lives, t.c.Lives), slices.Concat(g.c.Spans, t.c.Spans)
				g.c.Defaults = slices.Concat(g.c.Defaults, t.c.Defaults)
			}
			g.join(t)
			continue
		}
		if !t.c.Due.IsZero() {
			g := &group{c: t.c}
			g.join(t)
			groups = append(groups, g)
			continue
		}
		for i, r := range t.c.References {
			due := r.dueAt()
			k := key{t.c.Entity, due.UnixNano(), r.beyondFirst()}
			g := shared[k]
			if g == nil || len(g.c.References) == groupSize {
				g = &group{c: Companion{Entity: t.c.Entity, Due: due}, composed: true}
				g.c.References = make([]Reference, 0, min(len(t.c.References)-i, groupSize))
				shared[k] = g
				groups = append(groups, g)
			}
			g.c.References = append(g.c.References, r)
			g.join(t)
		}
	}
	return groups
}

// stands is for how many times to live and spans of them the slot of g stands.
func (g *group) stands() int { return len(g.c.Lives) + len(g.c.Spans) }

// join makes t wait for g. A ticket's references are added in one go, so that it is
// enough to compare it with the last one that joined.
func (g *group) join(t *ticket) {
	if n := len(g.tickets); n > 0 && g.tickets[n-1] == t {
		return
	}
	g.tickets = append(g.tickets, t)
	t.groups++
}

// settle ends the tickets of the group with the outcome of its companion.
func (g *group) settle(err error) {
	for _, t := range g.tickets {
		if err != nil && t.err == nil {
			t.err = err
		}
		if t.groups--; t.groups == 0 {
			t.finish()
		}
	}
}

// slotEnd is the end of the slot that t falls into. A slot's own end belongs to it.
func slotEnd(t time.Time) time.Time { return roundUp(t, slot) }

// slotDue is when the companion of the slot that ends there becomes due.
func slotDue(end time.Time) time.Time { return end.Add(-slot - slotLead) }

func roundUp(t time.Time, to time.Duration) time.Time {
	up := t.Truncate(to)
	if up.Before(t) {
		up = up.Add(to)
	}
	return up
}

// Compose turns a companion that is asked for into those to write: references with deadlines in one
// slot share one.
func (*Scheduler) Compose(asked Companion) (written []Companion) {
	for _, g := range compose([]*ticket{{c: asked}}) {
		written = append(written, g.c)
	}
	return written
}
