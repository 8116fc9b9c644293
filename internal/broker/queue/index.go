// SPDX-License-Identifier: Apache-2.0

package queue

import "slices"

// fanout is how many keys a node of the index holds: three levels for a million entries, and a
// node's keys fit in sixteen cache lines.
const fanout = 128

// An index holds entries by sequence number. It is a B+tree: entries are in the leaves, which are
// linked in order. keys[i] of an inner node is a lower bound for everything below kids[i]. Only
// keys[0] means nothing: what is below kids[0] is bounded further up, or not at all.
type index struct {
	table *table
	root  *node
	n     int
}

type node struct {
	keys []int64
	refs []ref   // of a leaf, beside keys
	kids []*node // of an inner node, beside keys
	next *node   // of a leaf: the leaf to the right
}

func newInner() *node {
	return &node{keys: make([]int64, 0, fanout), kids: make([]*node, 0, fanout)}
}

func (x *index) len() int { return x.n }

// get is the entry with this sequence number, or nil.
func (x *index) get(seq int64) *entry {
	leaf := x.leaf(seq)
	if leaf == nil {
		return nil
	}
	if i, ok := slices.BinarySearch(leaf.keys, seq); ok {
		return x.table.entry(leaf.refs[i])
	}
	return nil
}

// ascend calls yield for entries from seq upwards, seq included, until it returns false.
func (x *index) ascend(seq int64, yield func(*entry) bool) {
	leaf := x.leaf(seq)
	if leaf == nil {
		return
	}
	i, _ := slices.BinarySearch(leaf.keys, seq)
	for ; leaf != nil; leaf, i = leaf.next, 0 {
		for _, r := range leaf.refs[i:] {
			if !yield(x.table.entry(r)) {
				return
			}
		}
	}
}

func (x *index) leaf(seq int64) *node {
	n := x.root
	for n != nil && n.kids != nil {
		n = n.kids[n.child(seq)]
	}
	return n
}

// child is the position of the kid under which seq belongs.
func (n *node) child(seq int64) int {
	i, found := slices.BinarySearch(n.keys[1:], seq)
	if found {
		i++
	}
	return i
}

// insert adds e under its sequence number, which must be new.
func (x *index) insert(e *entry) {
	if x.root == nil {
		x.root = &node{} // grows as needed: most sessions have few messages
	}
	if right, key := x.root.insert(e); right != nil {
		root := newInner()
		root.keys = append(root.keys, x.root.keys[0], key)
		root.kids = append(root.kids, x.root, right)
		x.root = root
	}
	x.n++
}

// insert reports the node that had to be split off to the right, if any, and its lower bound.
func (n *node) insert(e *entry) (right *node, key int64) {
	if n.kids == nil {
		i, _ := slices.BinarySearch(n.keys, e.seq)
		if len(n.keys) == fanout {
			right = n.split(i)
			if i > len(n.keys) || len(n.keys) == fanout {
				right.keys = slices.Insert(right.keys, i-len(n.keys), e.seq)
				right.refs = slices.Insert(right.refs, i-len(n.refs), e.ref)
				return right, right.keys[0]
			}
		}
		n.keys = slices.Insert(n.keys, i, e.seq)
		n.refs = slices.Insert(n.refs, i, e.ref)
		if right != nil {
			key = right.keys[0]
		}
		return right, key
	}
	i := n.child(e.seq)
	kid, kidKey := n.kids[i].insert(e)
	if kid == nil {
		return nil, 0
	}
	if i++; len(n.keys) == fanout {
		right = n.split(i)
		if i > len(n.keys) || len(n.keys) == fanout {
			right.keys = slices.Insert(right.keys, i-len(n.keys), kidKey)
			right.kids = slices.Insert(right.kids, i-len(n.kids), kid)
			return right, right.keys[0]
		}
	}
	n.keys = slices.Insert(n.keys, i, kidKey)
	n.kids = slices.Insert(n.kids, i, kid)
	if right != nil {
		key = right.keys[0]
	}
	return right, key
}

// split moves the upper half of a full node into a new one on its right. When the key that is to be
// inserted at i goes to the very end, nothing moves: numbers mostly arrive in order, and
// half-filled nodes would be left behind.
func (n *node) split(i int) *node {
	at := fanout / 2
	if i == fanout {
		at = fanout
	}
	right := &node{keys: append(make([]int64, 0, fanout), n.keys[at:]...), next: n.next}
	n.keys = n.keys[:at]
	if n.kids != nil {
		right.kids = append(make([]*node, 0, fanout), n.kids[at:]...)
		n.kids = slices.Delete(n.kids, at, len(n.kids))
		return right
	}
	right.refs = append(make([]ref, 0, fanout), n.refs[at:]...)
	n.refs = n.refs[:at]
	n.next = right
	return right
}

// remove takes out the entry with this sequence number, which must be there.
func (x *index) remove(seq int64) {
	x.root.remove(seq)
	x.n--
	for len(x.root.kids) == 1 {
		x.root = x.root.kids[0]
	}
	if x.n == 0 {
		x.root = nil
	}
}

func (n *node) remove(seq int64) {
	if n.kids == nil {
		if i, ok := slices.BinarySearch(n.keys, seq); ok {
			n.keys = slices.Delete(n.keys, i, i+1)
			n.refs = slices.Delete(n.refs, i, i+1)
		}
		return
	}
	i := n.child(seq)
	n.kids[i].remove(seq)
	if len(n.kids[i].keys) < fanout/4 && len(n.kids) > 1 {
		n.even(max(i-1, 0))
	}
}

// even merges kids i and i+1 when they fit in one node, and otherwise gives each half.
func (n *node) even(i int) {
	l, r := n.kids[i], n.kids[i+1]
	total := len(l.keys) + len(r.keys)
	if r.kids != nil && len(r.keys) > 0 {
		r.keys[0] = n.keys[i+1] // its first kid may become a later one, which needs its bound
	}
	want := total / 2
	if total <= fanout {
		want = total
	}
	shift(&l.keys, &r.keys, want)
	if l.kids != nil {
		shift(&l.kids, &r.kids, want)
	} else {
		shift(&l.refs, &r.refs, want)
	}
	if want == total {
		l.next = r.next
		n.keys = slices.Delete(n.keys, i+1, i+2)
		n.kids = slices.Delete(n.kids, i+1, i+2)
		return
	}
	n.keys[i+1] = r.keys[0]
}

// shift moves elements between the end of l and the start of r until l has want.
func shift[T any](l, r *[]T, want int) {
	if k := want - len(*l); k > 0 {
		*l = append(*l, (*r)[:k]...)
		*r = slices.Delete(*r, 0, k)
	} else if k < 0 {
		*r = slices.Insert(*r, 0, (*l)[want:]...)
		*l = slices.Delete(*l, want, len(*l))
	}
}
