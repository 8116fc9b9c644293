// SPDX-License-Identifier: Apache-2.0

package queue

// An entry can be in two heaps at once; slot says which of its two positions a heap keeps.
const (
	slotPlace  = iota // waiting, locks or schedule: the current place of an entry, one of the three
	slotExpiry        // expiry
	slots
)

// arity of the heaps. Four children share a cache line, and the tree is half as deep as a binary
// one.
const arity = 4

// An entryHeap yields entries by ascending key, among equal keys by order of arrival. Entries know
// their position, so that any of them can be taken out in O(log n).
type entryHeap struct {
	slot  int
	items []heapItem
}

// heapItem has a copy of the key, so that comparing does not touch the entries.
type heapItem struct {
	key int64
	e   *entry
}

func (a heapItem) less(b heapItem) bool {
	return a.key < b.key || a.key == b.key && arrival(a.e.seq) < arrival(b.e.seq)
}

func (h *entryHeap) len() int { return len(h.items) }

// min is the first entry and its key; nil when there is none.
func (h *entryHeap) min() (*entry, int64) {
	if len(h.items) == 0 {
		return nil, 0
	}
	return h.items[0].e, h.items[0].key
}

func (h *entryHeap) push(e *entry, key int64) {
	h.items = append(h.items, heapItem{})
	h.up(len(h.items)-1, heapItem{key, e})
}

// remove takes e out. e must be in this heap.
func (h *entryHeap) remove(e *entry) {
	i := int(e.pos[h.slot])
	e.pos[h.slot] = nowhere
	n := len(h.items) - 1
	last := h.items[n]
	h.items[n] = heapItem{}
	h.items = h.items[:n]
	if i < n {
		h.place(i, last)
	}
	h.shrink()
}

// move gives e, which must be in this heap, another key.
func (h *entryHeap) move(e *entry, key int64) {
	h.place(int(e.pos[h.slot]), heapItem{key, e})
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
	it.e.pos[h.slot] = int32(i)
}

// shrink gives memory back after a peak. It halves, so its cost is paid by the removals before it.
func (h *entryHeap) shrink() {
	if c := cap(h.items); c > 1024 && len(h.items) < c/4 {
		h.items = append(make([]heapItem, 0, c/2), h.items...)
	}
}
