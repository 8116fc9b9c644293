// SPDX-License-Identifier: Apache-2.0

package queue

// A lazyHeap yields the entries that wait, by ascending key. An entry that waits no more leaves its
// item behind, which counts again when the entry comes back. Items that count no more are dropped
// at the top, and a few others with each entry that leaves. Keeping the position of each would be
// most of the cost of expiring one of a million.
type lazyHeap struct {
	heap   entryHeap
	own    uint8 // the bit of entry.marks that says that this heap has an item for it
	n      int   // items that count
	cursor int   // of leave
}

func newLazyHeap(t *table, own uint8) lazyHeap {
	return lazyHeap{heap: entryHeap{table: t, loose: true}, own: own}
}

// From twice as many items as count, and lazySlack, those that count no more are dropped. Until all
// are, there are four times as many at most.
const (
	lazySlack  = 64
	lazyProbes = 4 // items that are looked at for each that counts no more
)

func (h *lazyHeap) len() int { return h.n }

// add: e waits. If it has an item, that keeps its key.
func (h *lazyHeap) add(e *entry, key int64) {
	h.n++
	if e.marks&h.own == 0 {
		e.marks |= h.own
		h.heap.push(e, key)
	}
}

// move gives e, which waits, another key, in O(n).
func (h *lazyHeap) move(e *entry, key int64) {
	for i := range h.heap.items {
		if h.owner(i) == e {
			h.heap.place(i, newHeapItem(e, key))
			return
		}
	}
}

// leave: one of them waits no more. Mostly that is the first, which leaves no item behind: it may
// come back with another key than move gave it.
func (h *lazyHeap) leave() {
	h.n--
	if h.counts(0) == nil {
		h.drop(0)
	}
	for i := 0; i < lazyProbes && len(h.heap.items) > 2*h.n+lazySlack; i++ {
		if h.cursor >= len(h.heap.items) {
			h.cursor = 0
		}
		if h.counts(h.cursor) == nil {
			h.drop(h.cursor)
		} else {
			h.cursor++
		}
	}
}

// min is the first that waits; nil when there is none.
func (h *lazyHeap) min() *entry {
	for len(h.heap.items) > 0 {
		if e := h.counts(0); e != nil {
			return e
		}
		h.drop(0)
	}
	return nil
}

// owner is the entry that the item at i is for; nil when it has left the queue.
func (h *lazyHeap) owner(i int) *entry {
	it := h.heap.items[i]
	if e := h.heap.table.find(it.ref); e != nil && newHeapItem(e, it.key) == it {
		return e
	}
	return nil // another has its ref, or nobody
}

// counts is the entry that the item at i is for, if it waits.
func (h *lazyHeap) counts(i int) *entry {
	if e := h.owner(i); e != nil && e.waiting {
		return e
	}
	return nil
}

func (h *lazyHeap) drop(i int) {
	if e := h.owner(i); e != nil {
		e.marks &^= h.own
	}
	h.heap.removeAt(i)
}
