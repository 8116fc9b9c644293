// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"slices"
	"sort"
)

// Unsettled holds the unsettled deliveries of one direction of a session, in the order of their
// ids. A range of ids costs no more than the deliveries in it. The space depends on the number of
// unsettled deliveries, not on the span of their ids.
type Unsettled[T any] struct {
	entries []entry[T]
	head    int // entries before it are empty
	live    int
}

type entry[T any] struct {
	id    uint32
	live  bool
	value T
}

// Len returns how many deliveries there are.
func (u *Unsettled[T]) Len() int { return u.live }

// Add adds a delivery. Ids are serial numbers (RFC 1982) within a span of half their range. Usually
// they rise; a late id costs as many steps as there are higher ones, and a repeated id goes after
// its equals.
func (u *Unsettled[T]) Add(id uint32, value T) {
	if len(u.entries) == cap(u.entries) && u.live <= len(u.entries)/2 {
		u.compact()
	}
	at := len(u.entries)
	for at > u.head && int32(id-u.entries[at-1].id) < 0 {
		at--
	}
	if e := (entry[T]{id, true, value}); at == len(u.entries) {
		u.entries = append(u.entries, e)
	} else {
		u.entries = slices.Insert(u.entries, at, e)
	}
	u.live++
}

// compact removes the gaps. Add calls it when at least half are gaps, so its cost is amortized over
// as many removals.
func (u *Unsettled[T]) compact() {
	n := 0
	for _, e := range u.entries[u.head:] {
		if e.live {
			u.entries[n] = e
			n++
		}
	}
	clear(u.entries[n:])
	u.entries, u.head = u.entries[:n], 0
}

// find returns the index of the first entry whose id is not before id.
func (u *Unsettled[T]) find(id uint32) int {
	if u.head == len(u.entries) {
		return u.head
	}
	base := u.entries[u.head].id
	if int32(id-base) <= 0 {
		return u.head
	}
	tail := u.entries[u.head:]
	return u.head + sort.Search(len(tail), func(i int) bool { return tail[i].id-base >= id-base })
}

func (u *Unsettled[T]) removeAt(i int) {
	u.entries[i] = entry[T]{id: u.entries[i].id}
	u.live--
	for u.head < len(u.entries) && !u.entries[u.head].live {
		u.head++
	}
	if u.head == len(u.entries) {
		u.entries, u.head = u.entries[:0], 0
	}
}

// Each calls f for the deliveries from first to last, inclusive and with wrap-around, and removes
// those for which it returns true. f may remove deliveries, and must not add any.
func (u *Unsettled[T]) Each(first, last uint32, f func(value *T) (remove bool)) {
	for i := u.find(first); i < len(u.entries); i++ {
		e := &u.entries[i]
		if e.id-first > last-first {
			return
		}
		if e.live && f(&e.value) {
			u.removeAt(i) // may remove entries from the end, never moves one
		}
	}
}

// All calls f for every delivery and removes those for which it returns true.
func (u *Unsettled[T]) All(f func(value *T) (remove bool)) {
	if u.live > 0 {
		first := u.entries[u.head].id
		u.Each(first, first-1, f)
	}
}

// Remove removes one delivery of a list of values that can be compared, and reports whether it was
// there.
func Remove[T comparable](u *Unsettled[T], id uint32, value T) (found bool) {
	u.Each(id, id, func(v *T) bool {
		same := !found && *v == value
		found = found || same
		return same
	})
	return found
}
