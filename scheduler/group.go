// SPDX-License-Identifier: Apache-2.0

package scheduler

import "time"

// group is one companion to be written and the callers who wait for it.
type group struct {
	c       Companion
	tickets []*ticket
}

// compose turns the tickets of one transfer into companions: references of one entity
// with deadlines in one slot share one. A ticket whose references fall into several
// slots is done when all of its companions are.
func compose(tickets []*ticket) []*group {
	type key struct {
		entity string
		due    int64
	}
	var groups []*group
	shared := map[key]*group{}
	for _, t := range tickets {
		if !t.c.Due.IsZero() || t.c.Kind == KindSlot {
			g := &group{c: t.c}
			g.join(t)
			groups = append(groups, g)
			continue
		}
		for _, r := range t.c.References {
			due := slotEnd(r.Deadline)
			k := key{t.c.Entity, due.UnixNano()}
			g := shared[k]
			if g == nil || len(g.c.References) == groupSize {
				g = &group{c: Companion{Kind: KindEach, Entity: t.c.Entity, Due: due}}
				shared[k] = g
				groups = append(groups, g)
			}
			g.c.References = append(g.c.References, r)
			g.join(t)
		}
	}
	return groups
}

// join makes t wait for g. A ticket's references are added in one go, so that it is
// enough to look at the last one who joined.
func (g *group) join(t *ticket) {
	if n := len(g.tickets); n > 0 && g.tickets[n-1] == t {
		return
	}
	g.tickets = append(g.tickets, t)
	t.groups++
}

// settle tells the callers how the group's companion fared.
func (g *group) settle(err error) {
	for _, t := range g.tickets {
		if err != nil && t.err == nil {
			t.err = err
		}
		if t.groups--; t.groups == 0 {
			close(t.done)
		}
	}
}

// slotEnd is the end of the slot that t falls into. A slot's own end belongs to it.
func slotEnd(t time.Time) time.Time {
	end := t.Truncate(slot)
	if end.Before(t) {
		end = end.Add(slot)
	}
	return end
}
