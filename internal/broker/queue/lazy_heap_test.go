// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"testing"

	"pgregory.net/rapid"
)

// TestLazyHeapYieldsWhatWaits moves entries in runs that are long enough for the heap to drop
// items.
func TestLazyHeapYieldsWhatWaits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entries := &table{}
		h := lazyHeap{heap: entryHeap{table: entries, loose: true}, own: itemExpiry}
		var seq int64
		var all []*entry
		run := func(t *rapid.T) []*entry {
			from := rapid.IntRange(0, len(all)).Draw(t, "from")
			return all[from:min(len(all), from+rapid.IntRange(0, 50*lazySlack).Draw(t, "n"))]
		}
		leave := func(e *entry) {
			if e.waiting {
				e.waiting = false
				h.leave()
			}
		}
		key := rapid.Int64Range(0, 100_000)
		t.Repeat(map[string]func(*rapid.T){
			"come": func(t *rapid.T) {
				first, step := key.Draw(t, "first"), key.Draw(t, "step")
				for i := range rapid.Int64Range(0, 50*lazySlack).Draw(t, "n") {
					seq++
					e := &entry{seq: seq, expiresAt: instant((first + i*step) % 100_000), delivered: delivered{waiting: true}}
					entries.add(e)
					h.add(e, int64(e.expiresAt))
					all = append(all, e)
				}
			},
			"wait no more": func(t *rapid.T) {
				for _, e := range run(t) {
					leave(e)
				}
			},
			"come back": func(t *rapid.T) {
				for _, e := range run(t) {
					if !e.waiting {
						e.waiting = true
						h.add(e, int64(e.expiresAt))
					}
				}
			},
			"leave the queue": func(t *rapid.T) {
				gone := run(t)
				for _, e := range gone {
					leave(e)
					entries.remove(e)
					e.seq = 0
				}
				kept := all[:0]
				for _, e := range all {
					if e.seq != 0 {
						kept = append(kept, e)
					}
				}
				all = kept
			},
			"expire": func(t *rapid.T) {
				for range rapid.IntRange(0, 500).Draw(t, "n") {
					if e := h.min(); e != nil {
						leave(e)
					}
				}
			},
			"": func(t *rapid.T) {
				n, first := 0, never
				for _, e := range all {
					if e.waiting {
						n++
						first = min(first, e.expiresAt)
					}
				}
				if h.len() != n || len(h.heap.items) > 4*n+2*lazySlack {
					t.Fatalf("%d wait, with %d items, want %d", h.len(), len(h.heap.items), n)
				}
				if e := h.min(); (e == nil) != (n == 0) || e != nil && e.expiresAt != first {
					t.Fatalf("min = %+v, want one that expires at %d", e, first)
				}
				for e, items := range h.check(t) {
					if items != 1 || e.marks != h.own {
						t.Fatalf("entry %d has %d items, and says %d", e.seq, items, e.marks)
					}
				}
			},
		})
	})
}
