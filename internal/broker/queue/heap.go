// SPDX-License-Identifier: Apache-2.0

package queue

import "iter"

// arity of the heaps. Four children share a cache line, and the tree is half as deep as a binary
// one.
const arity = 4

// nowhere is the position of an entry in a heap that it is not in.
const nowhere = -1

// An entryHeap yields entries by ascending key, among equal keys by order of arrival. An entry is
// in at most one of the heaps of its queue, and the table knows its position, so any entry can be
// taken out in O(log n).
type entryHeap struct {
	table *table
	items []heapItem
	loose bool // the table does not know the positions, see lazyHeap
}

// heapItem has a copy of what is compared, so that comparing does not touch the entries.
type heapItem struct {
	key   int64
	order uint32 // the end of arrival
	ref   ref
}

func newHeapItem(e *entry, key int64) heapItem { return heapItem{key, uint32(arrival(e.seq)), e.ref} }

// less: the order of arrival wraps around. Only where two billion messages came between two of the
// same key is the later one first.
func (a heapItem) less(b heapItem) bool {
	return a.key < b.key || a.key == b.key && int32(a.order-b.order) < 0
}

func (h *entryHeap) len() int { return len(h.items) }

// all is the entries in no particular order.
func (h *entryHeap) all() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for _, it := range h.items {
			if !yield(h.table.entry(it.ref)) {
				return
			}
		}
	}
}

// min is the first entry and its key; nil when there is none.
func (h *entryHeap) min() (*entry, int64) {
	if len(h.items) == 0 {
		return nil, 0
	}
	return h.table.entry(h.items[0].ref), h.items[0].key
}

// next is the first key of a heap by time.
func (h *entryHeap) next() instant {
	if len(h.items) == 0 {
		return never
	}
	return instant(h.items[0].key)
}

func (h *entryHeap) push(e *entry, key int64) {
	h.items = append(h.items, heapItem{})
	h.up(len(h.items)-1, newHeapItem(e, key))
}

// remove takes e out. e must be in this heap.
func (h *entryHeap) remove(e *entry) {
	pos := h.table.pos(e.ref)
	i := int(*pos)
	*pos = nowhere
	h.removeAt(i)
}

func (h *entryHeap) removeAt(i int) {
	n := len(h.items) - 1
	last := h.items[n]
	h.items = h.items[:n]
	if i < n {
		h.place(i, last)
	}
	h.shrink()
}

// move gives e, which must be in this heap, another key.
func (h *entryHeap) move(e *entry, key int64) {
	h.place(int(*h.table.pos(e.ref)), newHeapItem(e, key))
}

// place puts it where the hole at i lets it come to rest.
func (h *entryHeap) place(i int, it heapItem) {
	if i > 0 && it.less(h.items[(i-1)/arity]) {
		h.up(i, it)
		return
	}
	h.down(i, it)
}

func (h *entryHeap) up(i int, it heapItem) {
	for i > 0 {
		parent := (i - 1) / arity
		if !it.less(h.items[parent]) {
			break
		}
		h.set(i, h.items[parent])
		i = parent
	}
	h.set(i, it)
}

func (h *entryHeap) down(i int, it heapItem) {
	for {
		first := i*arity + 1
		if first >= len(h.items) {
			break
		}
		least := first
		for c := first + 1; c < min(first+arity, len(h.items)); c++ {
			if h.items[c].less(h.items[least]) {
				least = c
			}
		}
		if !h.items[least].less(it) {
			break
		}
		h.set(i, h.items[least])
		i = least
	}
	h.set(i, it)
}

func (h *entryHeap) set(i int, it heapItem) {
	h.items[i] = it
	if !h.loose {
		*h.table.pos(it.ref) = int32(i)
	}
}

// shrink gives memory back after a peak. It halves, so its cost is paid by the removals before it.
func (h *entryHeap) shrink() {
	if c := cap(h.items); c > 1024 && len(h.items) < c/4 {
		h.items = append(make([]heapItem, 0, c/2), h.items...)
	}
}
