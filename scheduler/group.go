// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"time"

	"overdue/scheduler/index"
)

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
	t.wait()
}

// end ends the tickets of the group with the outcome of its companion.
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
func (*Scheduler) Compose(asked Companion) (written []Companion) {
	for _, g := range compose([]*ticket{{c: asked}}) {
		written = append(written, g.c)
	}
	return written
}
