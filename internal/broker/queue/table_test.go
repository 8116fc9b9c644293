// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"testing"

	"pgregory.net/rapid"
)

func TestTableAgreesWithAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var entries table
		in := make(map[ref]*entry)
		var order []*entry // as they were added
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				for range rapid.IntRange(1, 3*chunkSize).Draw(t, "n") {
					e := &entry{}
					entries.add(e)
					if in[e.ref] != nil {
						t.Fatalf("ref %d was given twice", e.ref)
					}
					if pos := *entries.pos(e.ref); pos != nowhere {
						t.Fatalf("a new entry stands in a heap, at %d", pos)
					}
					*entries.pos(e.ref) = 7 // as the entry before might leave it
					in[e.ref], order = e, append(order, e)
				}
			},
			"remove": func(t *rapid.T) {
				if len(order) == 0 {
					t.Skip("empty")
				}
				from := rapid.IntRange(0, len(order)-1).Draw(t, "from")
				n := rapid.IntRange(1, min(3*chunkSize, len(order)-from)).Draw(t, "n")
				for _, e := range order[from : from+n] {
					entries.remove(e)
					delete(in, e.ref)
				}
				order = append(order[:from:from], order[from+n:]...)
			},
			"": func(t *rapid.T) {
				for r, e := range in {
					if entries.entry(r) != e || entries.find(r) != e {
						t.Fatalf("at(%d) is another entry", r)
					}
				}
				for r := range ref((len(entries.chunks) + 1) * chunkSize) {
					if e := entries.find(r); e != in[r] {
						t.Fatalf("find(%d) = %p, want %p", r, e, in[r])
					}
				}
				held := 0
				for _, c := range entries.chunks {
					if (c.data == nil) != (c.used == 0) {
						t.Fatalf("chunk with data: %v, used: %x", c.data != nil, c.used)
					}
					if c.data != nil {
						held++
					}
				}
				if entries.n != len(in) || held > len(in) {
					t.Fatalf("%d entries in %d chunks, want %d", entries.n, held, len(in))
				}
			},
		})
	})
}

func TestTableFillsChunksBeforeItAddsOne(t *testing.T) {
	var entries table
	var all []*entry
	for range 100 * chunkSize {
		e := &entry{}
		entries.add(e)
		all = append(all, e)
	}
	for round := range 10 { // every other entry leaves, and as many come
		for i := round % 2; i < len(all); i += 2 {
			entries.remove(all[i])
			all[i] = nil
		}
		for i := round % 2; i < len(all); i += 2 {
			all[i] = &entry{}
			entries.add(all[i])
		}
	}
	if n := len(entries.chunks); n != 100 {
		t.Errorf("%d chunks for %d entries, want 100", n, len(all))
	}
}
