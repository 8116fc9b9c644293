// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// check fails unless x has the entries in want, in order.
func (x *index) check(t *rapid.T, want map[int64]*entry) {
	t.Helper()
	if x.len() != len(want) {
		t.Fatalf("len = %d, want %d", x.len(), len(want))
	}
	var got []int64
	x.ascend(-1<<63, func(e *entry) bool {
		got = append(got, e.seq)
		return true
	})
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), got); diff != "" {
		t.Fatalf("ascend: -want +got:\n%s", diff)
	}
	for seq, e := range want {
		if x.get(seq) != e {
			t.Fatalf("get(%d) = %p, want %p", seq, x.get(seq), e)
		}
	}
}

// put inserts a new entry.
func (x *index) put(seq int64) *entry {
	e := &entry{seq: seq}
	x.table.add(e)
	x.insert(e)
	return e
}

// take removes the entry and its ref.
func (x *index) take(seq int64) {
	e := x.get(seq)
	x.remove(seq)
	x.table.remove(e)
}

func TestIndexAgreesWithASortedMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := index{table: &table{}}
		want := make(map[int64]*entry)
		for range rapid.IntRange(1, 12).Draw(t, "rounds") {
			// Runs rather than single steps, so that nodes split and merge.
			start := rapid.Int64Range(0, 4000).Draw(t, "start")
			step := rapid.Int64Range(1, 7).Draw(t, "step")
			n := rapid.Int64Range(1, 1500).Draw(t, "n")
			down := rapid.Bool().Draw(t, "down")
			add := rapid.Bool().Draw(t, "add")
			for i := range n {
				seq := start + i*step
				if down {
					seq = start + (n-1-i)*step
				}
				switch {
				case add && want[seq] == nil:
					want[seq] = x.put(seq)
				case !add && want[seq] != nil:
					delete(want, seq)
					x.take(seq)
				}
			}
			x.check(t, want)
		}
		from := rapid.Int64Range(-1, 20000).Draw(t, "from")
		var first int64 = -1
		x.ascend(from, func(e *entry) bool { first = e.seq; return false })
		var wantFirst int64 = -1
		if i, all := 0, slices.Sorted(maps.Keys(want)); true {
			if i, _ = slices.BinarySearch(all, from); i < len(all) {
				wantFirst = all[i]
			}
		}
		if first != wantFirst {
			t.Fatalf("first from %d = %d, want %d", from, first, wantFirst)
		}
		for seq := range maps.Clone(want) {
			delete(want, seq)
			x.take(seq)
		}
		x.check(t, want)
	})
}
