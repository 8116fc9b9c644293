// SPDX-License-Identifier: Apache-2.0

package queue

// An expiryHeap yields the entries that wait and can expire, by when they do. An entry that waits no more leaves its item
// behind, which counts again when the entry comes back. Items that count no more are dropped at the top, and
// swept out below: to keep the position of each would be most of what it costs to expire one of a million.
type expiryHeap struct {
	heap   entryHeap
	n      int // items that count
	cursor int // of the sweep
}

const (
	expirySlack = 1024 // items that may count no more, besides as many as count
	expirySweep = 4    // items that are looked at for each that counts no more
)

func (h *expiryHeap) len() int { return h.n }

// add: e waits, and can expire.
func (h *expiryHeap) add(e *entry) {
	h.n++
	if !e.inExpiry {
		e.inExpiry = true
		h.heap.push(e, int64(e.expiresAt))
	}
}

// leave: one of them waits no more.
func (h *expiryHeap) leave() {
	h.n--
	for i := 0; i < expirySweep && len(h.heap.items) > 2*h.n+expirySlack; i++ {
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
func (h *expiryHeap) min() *entry {
	for len(h.heap.items) > 0 {
		if e := h.counts(0); e != nil {
			return e
		}
		h.drop(0)
	}
	return nil
}

// owner is the entry that the item at i is for; nil when it has left the queue.
func (h *expiryHeap) owner(i int) *entry {
	it := h.heap.items[i]
	if e := h.heap.table.find(it.ref); e != nil && newHeapItem(e, int64(e.expiresAt)) == it {
		return e
	}
	return nil // another has its ref, or nobody
}

// counts is the entry that the item at i is for, if it waits.
func (h *expiryHeap) counts(i int) *entry {
	if e := h.owner(i); e != nil && e.waiting {
		return e
	}
	return nil
}

func (h *expiryHeap) drop(i int) {
	if e := h.owner(i); e != nil {
		e.inExpiry = false
	}
	h.heap.removeAt(i)
}
