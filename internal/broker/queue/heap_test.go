// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"testing"

	"pgregory.net/rapid"
)

func TestHeapYieldsByKeyThenSequenceNumber(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := entryHeap{slot: rapid.IntRange(0, slots-1).Draw(t, "slot")}
		var seq int64
		in := make(map[*entry]int64)
		anyOf := func() *entry {
			return h.items[rapid.IntRange(0, h.len()-1).Draw(t, "i")].e
		}
		// Keys from a small range, so that there are ties.
		key := rapid.Int64Range(0, 50)
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				for range rapid.IntRange(1, 40).Draw(t, "n") {
					seq++
					e := &entry{seq: seq, pos: [slots]int32{nowhere, nowhere}}
					in[e] = key.Draw(t, "key")
					h.push(e, in[e])
				}
			},
			"remove": func(t *rapid.T) {
				if h.len() == 0 {
					t.Skip("empty")
				}
				e := anyOf()
				h.remove(e)
				delete(in, e)
				if e.pos[h.slot] != nowhere {
					t.Fatalf("position of a removed entry = %d", e.pos[h.slot])
				}
			},
			"move": func(t *rapid.T) {
				if h.len() == 0 {
					t.Skip("empty")
				}
				e := anyOf()
				in[e] = key.Draw(t, "key")
				h.move(e, in[e])
			},
			"": func(t *rapid.T) {
				if h.len() != len(in) {
					t.Fatalf("len = %d, want %d", h.len(), len(in))
				}
				first, _ := h.min()
				for e, k := range in {
					i := int(e.pos[h.slot])
					if h.items[i].e != e || h.items[i].key != k {
						t.Fatalf("entry %d (key %d) is not at its position %d", e.seq, k, i)
					}
					if (heapItem{k, e}).less(heapItem{in[first], first}) {
						t.Fatalf("min is %d (key %d), but %d (key %d) is less", first.seq, in[first], e.seq, k)
					}
				}
			},
		})
		// What is left comes out in order.
		var last *heapItem
		for h.len() > 0 {
			e, k := h.min()
			it := heapItem{k, e}
			if last != nil && it.less(*last) {
				t.Fatalf("entry %d (key %d) after entry %d (key %d)", e.seq, k, last.e.seq, last.key)
			}
			last = &it
			h.remove(e)
		}
	})
}

func TestHeapGivesMemoryBackAfterAPeak(t *testing.T) {
	h := entryHeap{slot: slotPlace}
	const n = 100_000
	for i := range int64(n) {
		h.push(&entry{seq: i}, i)
	}
	for h.len() > 100 {
		e, _ := h.min()
		h.remove(e)
	}
	if c := cap(h.items); c > 1024 {
		t.Errorf("capacity for 100 entries after a peak of %d = %d, want at most 1024", n, c)
	}
}
