// SPDX-License-Identifier: Apache-2.0

package queue

import "pgregory.net/rapid"

// check fails unless every entry stands exactly where its state says, and everything that is
// counted adds up.
func (q *Queue) check(t *rapid.T) {
	t.Helper()
	q.mu.Lock()
	defer q.mu.Unlock()
	var size int64
	var waiting, expiring, locked, scheduled, deferred, tokens, outboxes int
	none := &entryHeap{}
	in := func(h *entryHeap, e *entry) bool {
		i := int(*q.entries.table.pos(e.ref))
		return i >= 0 && i < h.len() && h.items[i].ref == e.ref
	}
	items := map[*lazyHeap]map[*entry]int{&q.waiting.expiry: q.waiting.expiry.check(t)}
	q.entries.byNumber.ascend(-1<<63, func(e *entry) bool {
		size += e.size()
		waitsIn, locksIn := &q.waiting.line, &q.locks.heap
		waits := e.state == Active && !e.locked
		if q.sessions != nil {
			s := q.sessions.byID[e.sessionID]
			if s == nil || s.byNumber.get(e.seq) != e {
				t.Fatalf("entry %d is not in its session %q", e.seq, e.sessionID)
			}
			waitsIn, locksIn = &s.waiting, none
			if s.lock != nil {
				locksIn = &s.lock.locked
			}
		}
		where := map[*entryHeap]bool{
			locksIn:          e.locked && !e.held,
			&q.schedule.heap: e.state == Scheduled && !e.held,
		}
		for h, want := range where {
			if in(h, e) != want {
				t.Fatalf("entry %d (state %d, locked %v): in heap %p = %v", e.seq, e.state, e.locked, h, !want)
			}
		}
		for h, n := range map[*entryHeap]*int{
			locksIn: &locked, &q.schedule.heap: &scheduled,
		} {
			if where[h] {
				*n++
			}
		}
		if e.waiting != waits {
			t.Fatalf("entry %d (state %d, locked %v) waits: %v", e.seq, e.state, e.locked, e.waiting)
		}
		if waits {
			waiting++
		}
		if items[waitsIn] == nil {
			items[waitsIn] = waitsIn.check(t)
		}
		for h, in := range map[*lazyHeap]bool{waitsIn: waits, &q.waiting.expiry: waits && e.expiresAt != never && !q.cfg.frozen} {
			has := e.marks&h.own != 0
			if n := items[h][e]; has != (n == 1) || n > 1 || in && !has {
				t.Fatalf("entry %d (waits: %v) has %d items in heap %d, and says %v", e.seq, e.waiting, n, h.own, has)
			}
		}
		if e.waiting && e.expiresAt != never && !q.cfg.frozen {
			expiring++
		}
		if e.state == Deferred {
			deferred++
		}
		if e.token != (LockToken{}) {
			tokens++
			if q.locks.tokens[e.token] != e || !e.locked {
				t.Fatalf("entry %d: its token leads elsewhere, or it is not locked", e.seq)
			}
		}
		if e.holder != nil {
			outboxes++
		}
		return true
	})
	got := []int{q.waiting.line.len(), q.waiting.expiry.len(), q.locks.heap.len(), q.schedule.heap.len(), q.entries.deferred, len(q.locks.tokens)}
	want := []int{waiting, expiring, locked, scheduled, deferred, tokens}
	size += q.checkSessions(t, got)
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("waiting, expiry, locks, schedule, deferred, tokens = %d, want %d", got, want)
		}
	}
	if n := q.entries.byNumber.len(); q.entries.table.n != n {
		t.Fatalf("%d entries have a ref, want %d", q.entries.table.n, n)
	}
	if q.entries.size != size {
		t.Fatalf("size = %d, want %d", q.entries.size, size)
	}
	if len(q.deadLetters.dying) != 0 {
		t.Fatalf("%d dead are not buried", len(q.deadLetters.dying))
	}
	outboxes -= q.dispatch.consumers.check(t)
	if q.sessions != nil {
		for _, h := range q.sessions.locks {
			outboxes -= h.consumers.check(t)
		}
	}
	if outboxes != 0 {
		t.Fatalf("%d entries have a holder without being in an outbox, or the reverse", outboxes)
	}
}

// check reports how many items each entry has.
func (h *lazyHeap) check(t *rapid.T) map[*entry]int {
	t.Helper()
	if n := len(h.heap.items); n > 4*h.n+2*lazySlack {
		t.Fatalf("%d items for %d that wait", n, h.n)
	}
	items := make(map[*entry]int)
	for i, it := range h.heap.items {
		if i > 0 && it.less(h.heap.items[(i-1)/arity]) {
			t.Fatalf("item %d is before the one above it", i)
		}
		if e := h.owner(i); e != nil {
			items[e]++
		}
	}
	return items
}

// check reports how many entries are in outboxes.
func (cs *consumers) check(t *rapid.T) (outboxes int) {
	t.Helper()
	for c := range cs.all {
		outboxes += len(c.outbox)
		var sum int64
		for i, g := range c.grants {
			sum += g.n
			if g.n <= 0 || i > 0 && g.ordinal <= c.grants[i-1].ordinal {
				t.Fatalf("grants %v", c.grants)
			}
		}
		if sum != max(c.credit, 0) {
			t.Fatalf("grants %v with credit %d", c.grants, c.credit)
		}
		if c.queued != c.able() {
			t.Fatalf("consumer is in line: %v, want %v", c.queued, c.able())
		}
	}
	for i, c := range cs.line {
		if i > 0 && c.grants[0].ordinal <= cs.line[i-1].grants[0].ordinal {
			t.Fatalf("line of consumers is out of order at %d", i)
		}
	}
	return outboxes
}
