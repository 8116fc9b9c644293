// SPDX-License-Identifier: Apache-2.0

package queue

import "math/bits"

// A ref is the number of an entry in the table of its queue, while it is there.
type ref uint32

// chunkSize is how many entries a chunk of a table holds: one for each bit of its mask.
const chunkSize = 64

// A table gives the entries of one queue their refs, and keeps where they stand in a heap. The
// index and the heaps hold refs alone, so they have no pointers. The garbage collector does not
// read them, and does not have to be informed when a part of them is moved.
type table struct {
	chunks []chunk
	room   []uint32 // those of chunks that are not full
	n      int
	spare  *chunkData // of the last chunk that became empty; nil: it is in use
}

type chunk struct {
	used uint64 // a bit for each entry
	data *chunkData
}

type chunkData struct {
	entries [chunkSize]*entry
	pos     *[chunkSize]int32 // in the heap; nowhere: in none
}

// entry is the entry with this ref.
func (t *table) entry(r ref) *entry { return t.chunks[r/chunkSize].data.entries[r%chunkSize] }

// find is entry for a ref that may have ended, and be another entry's by now; nil: it is nobody's.
func (t *table) find(r ref) *entry {
	if c := int(r / chunkSize); c < len(t.chunks) && t.chunks[c].data != nil {
		return t.chunks[c].data.entries[r%chunkSize]
	}
	return nil
}

// pos is where the entry with this ref stands in its heap.
func (t *table) pos(r ref) *int32 { return &t.chunks[r/chunkSize].data.pos[r%chunkSize] }

// add gives e a ref.
func (t *table) add(e *entry) {
	if len(t.room) == 0 {
		t.room = append(t.room, uint32(len(t.chunks)))
		t.chunks = append(t.chunks, chunk{})
	}
	last := len(t.room) - 1
	number := t.room[last]
	c := &t.chunks[number]
	if c.data == nil {
		if c.data, t.spare = t.spare, nil; c.data == nil {
			c.data = &chunkData{pos: new([chunkSize]int32)}
		}
	}
	i := bits.TrailingZeros64(^c.used)
	if c.used |= 1 << i; ^c.used == 0 {
		t.room = t.room[:last]
	}
	c.data.entries[i], c.data.pos[i] = e, nowhere
	e.ref = ref(number*chunkSize + uint32(i))
	t.n++
}

// remove ends the ref of e, which must be in no entryHeap.
func (t *table) remove(e *entry) {
	number, i := uint32(e.ref/chunkSize), e.ref%chunkSize
	c := &t.chunks[number]
	if ^c.used == 0 {
		t.room = append(t.room, number)
	}
	c.data.entries[i] = nil
	if c.used &^= 1 << i; c.used == 0 {
		t.spare, c.data = c.data, nil
	}
	if t.n--; t.n == 0 && len(t.chunks) > chunkSize { // after a peak
		t.chunks, t.room = nil, nil
	}
}
