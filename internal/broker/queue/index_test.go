// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"overdue/internal/testing/testseed"
)

// check fails unless x is a B+tree of the entries in want, linked in order and filled as promised.
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
	if x.root != nil {
		x.root.check(t, -1<<63, 1<<63-1)
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

// check returns the height, which is the same everywhere.
func (n *node) check(t *rapid.T, low, high int64) (height int) {
	t.Helper()
	bounds := n.keys
	if n.kids != nil {
		bounds = n.keys[1:]
	}
	if !slices.IsSorted(bounds) || len(n.keys) > fanout {
		t.Fatalf("keys of a node: %v", n.keys)
	}
	if n.kids == nil {
		if len(n.refs) != len(n.keys) {
			t.Fatalf("leaf with %d keys and %d refs", len(n.keys), len(n.refs))
		}
		for _, key := range n.keys {
			if key < low || key >= high {
				t.Fatalf("key %d in a leaf for [%d, %d)", key, low, high)
			}
		}
		return 1
	}
	if len(n.kids) != len(n.keys) {
		t.Fatalf("node with %d keys and %d kids", len(n.keys), len(n.kids))
	}
	for i, kid := range n.kids {
		l, h := low, high
		if i > 0 {
			l = n.keys[i]
		}
		if i+1 < len(n.keys) {
			h = n.keys[i+1]
		}
		if below := kid.check(t, l, h); i > 0 && below != height {
			t.Fatalf("kids of heights %d and %d", height, below)
		} else {
			height = below
		}
	}
	return height + 1
}

func TestIndexAgreesWithASortedMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := index{table: &table{}}
		want := make(map[int64]*entry)
		for range rapid.IntRange(1, 12).Draw(t, "rounds") {
			// Runs rather than single steps, so that nodes split, even out and merge.
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

func TestIndexFillsItsNodesWhenNumbersArriveInOrder(t *testing.T) {
	x := index{table: &table{}}
	const n = 100_000
	for seq := range int64(n) {
		x.put(seq)
	}
	leaves := 0
	for leaf := x.leaf(-1); leaf != nil; leaf = leaf.next {
		leaves++
	}
	if want := (n + fanout - 1) / fanout; leaves != want {
		t.Errorf("%d leaves for %d entries, want %d", leaves, n, want)
	}
}

func TestIndexStaysDenseWhenMostEntriesLeave(t *testing.T) {
	x := index{table: &table{}}
	const n, kept = 100_000, 40 // one in forty stays: a few per leaf if leaves were not merged
	for seq := range int64(n) {
		x.put(seq)
	}
	for seq := range int64(n) {
		if seq%kept != 0 {
			x.take(seq)
		}
	}
	leaves := 0
	for leaf := x.leaf(-1); leaf != nil; leaf = leaf.next {
		leaves++
	}
	if limit := n / kept / (fanout / 4); leaves > limit {
		t.Errorf("%d leaves for %d entries, want at most %d", leaves, x.len(), limit)
	}
}

// In order, the number that makes the index a level higher stands alone at its end: there is
// nothing to even out with.
func TestTheEntryThatMadeTheIndexHigherCanLeave(t *testing.T) {
	x := index{table: &table{}}
	const n = fanout * fanout
	for seq := range int64(n + 1) {
		x.put(seq)
	}
	x.take(n)
	if x.len() != n || x.get(n) != nil || x.get(n-1) == nil {
		t.Errorf("len %d, get(%d) %v, get(%d) %v; want all but the last", x.len(), n, x.get(n), n-1, x.get(n-1))
	}
}

// Three levels, which no run of the model above reaches for long: inner nodes even out and merge,
// too.
func TestALargeIndexAgreesWithASet(t *testing.T) {
	r := rand.New(rand.NewPCG(testseed.Of(t), 0))
	x := index{table: &table{}}
	const n = 60_000
	in := make([]bool, n)
	put := func(seq int, want bool) {
		switch {
		case want && !in[seq]:
			x.put(int64(seq))
		case !want && in[seq]:
			x.take(int64(seq))
		}
		in[seq] = want
	}
	for round := range 60 {
		// Runs come and go, and single ones everywhere; towards the end more go than come.
		from := r.IntN(n)
		add := r.IntN(60) > round
		for seq := from; seq < min(from+n/3, n); seq++ {
			put(seq, add)
		}
		for range n / 20 {
			put(r.IntN(n), r.IntN(60) > round)
		}
		var got, want []int64
		x.ascend(-1, func(e *entry) bool { got = append(got, e.seq); return true })
		for seq, is := range in {
			if e := x.get(int64(seq)); (e != nil) != is {
				t.Fatalf("round %d: get(%d) = %v, want it there: %v", round, seq, e, is)
			}
			if is {
				want = append(want, int64(seq))
			}
		}
		if !slices.Equal(got, want) || x.len() != len(want) {
			t.Fatalf("round %d: %d entries in order, len %d; want %d", round, len(got), x.len(), len(want))
		}
	}
}
