// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"testing"

	"pgregory.net/rapid"
)

func TestHeapYieldsByKeyThenSequenceNumber(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entries := &table{}
		h := entryHeap{table: entries}
		var seq int64
		in := make(map[*entry]int64)
		anyOf := func() *entry {
			return entries.entry(h.items[rapid.IntRange(0, h.len()-1).Draw(t, "i")].ref)
		}
		// Keys from a small range, so that there are ties.
		key := rapid.Int64Range(0, 50)
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				for range rapid.IntRange(1, 40).Draw(t, "n") {
					seq++
					e := &entry{seq: seq}
					entries.add(e)
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
				if pos := *entries.pos(e.ref); pos != nowhere {
					t.Fatalf("position of a removed entry = %d", pos)
				}
				entries.remove(e)
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
					i := int(*entries.pos(e.ref))
					if h.items[i].ref != e.ref || h.items[i].key != k {
						t.Fatalf("entry %d (key %d) is not at its position %d", e.seq, k, i)
					}
					if newHeapItem(e, k).less(newHeapItem(first, in[first])) {
						t.Fatalf("min is %d (key %d), but %d (key %d) is less", first.seq, in[first], e.seq, k)
					}
				}
			},
		})
		// The remaining entries come out in order.
		var last *entry
		var lastKey int64
		for h.len() > 0 {
			e, k := h.min()
			if last != nil && (k < lastKey || k == lastKey && e.seq < last.seq) {
				t.Fatalf("entry %d (key %d) after entry %d (key %d)", e.seq, k, last.seq, lastKey)
			}
			last, lastKey = e, k
			h.remove(e)
		}
	})
}

func TestHeapGivesMemoryBackAfterAPeak(t *testing.T) {
	h := entryHeap{table: &table{}}
	const n = 100_000
	for i := range int64(n) {
		e := &entry{seq: i}
		h.table.add(e)
		h.push(e, i)
	}
	for h.len() > 100 {
		e, _ := h.min()
		h.remove(e)
	}
	if c := cap(h.items); c > 1024 {
		t.Errorf("capacity for 100 entries after a peak of %d = %d, want at most 1024", n, c)
	}
}
