// SPDX-License-Identifier: Apache-2.0

package queue

import "github.com/tidwall/btree"

// An index holds entries by sequence number.
type index struct {
	table *table
	refs  btree.Map[int64, ref]
}

func (x *index) len() int { return x.refs.Len() }

// get is the entry with this sequence number, or nil.
func (x *index) get(seq int64) *entry {
	if r, ok := x.refs.Get(seq); ok {
		return x.table.entry(r)
	}
	return nil
}

// ascend calls yield for entries from seq upwards, seq included, until it returns false.
func (x *index) ascend(seq int64, yield func(*entry) bool) {
	x.refs.Ascend(seq, func(_ int64, r ref) bool { return yield(x.table.entry(r)) })
}

// descend is ascend downwards.
func (x *index) descend(seq int64, yield func(*entry) bool) {
	x.refs.Descend(seq, func(_ int64, r ref) bool { return yield(x.table.entry(r)) })
}

// insert adds e under its sequence number, which must be new.
func (x *index) insert(e *entry) { x.refs.Set(e.seq, e.ref) }

func (x *index) remove(seq int64) { x.refs.Delete(seq) }
