// SPDX-License-Identifier: Apache-2.0

package server

import (
	"slices"
	"sort"
)

// unsettled holds the unsettled deliveries of one direction of a session, in the order of their
// ids. A range of ids costs no more than the deliveries in it. The space depends on the number of
// unsettled deliveries, not on the span of their ids.
type unsettled[T comparable] struct {
	entries []entry[T]
	head    int // entries before it are empty
	live    int
}

type entry[T comparable] struct {
	id    uint32
	value T // zero = settled
}

// add adds a delivery. Ids are serial numbers (RFC 1982) within a span of half their range. Usually
// they rise; a late id costs as many steps as there are higher ones, and a repeated id goes after
// its equals.
func (u *unsettled[T]) add(id uint32, value T) {
	if len(u.entries) == cap(u.entries) && u.live <= len(u.entries)/2 {
		u.compact()
	}
	at := len(u.entries)
	for at > u.head && int32(id-u.entries[at-1].id) < 0 {
		at--
	}
	if e := (entry[T]{id, value}); at == len(u.entries) {
		u.entries = append(u.entries, e)
	} else {
		u.entries = slices.Insert(u.entries, at, e)
	}
	u.live++
}

// compact removes the gaps. add calls it when at least half are gaps, so its cost is amortized over
// as many removals.
func (u *unsettled[T]) compact() {
	var zero T
	n := 0
	for _, e := range u.entries[u.head:] {
		if e.value != zero {
			u.entries[n] = e
			n++
		}
	}
	clear(u.entries[n:])
	u.entries, u.head = u.entries[:n], 0
}

// find returns the index of the first entry whose id is not before id.
func (u *unsettled[T]) find(id uint32) int {
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

// remove removes a delivery and reports whether it was present.
func (u *unsettled[T]) remove(id uint32, value T) bool {
	for i := u.find(id); i < len(u.entries) && u.entries[i].id == id; i++ {
		if u.entries[i].value == value {
			u.removeAt(i)
			return true
		}
	}
	return false
}

func (u *unsettled[T]) removeAt(i int) {
	var zero T
	u.entries[i].value = zero
	u.live--
	for u.head < len(u.entries) && u.entries[u.head].value == zero {
		u.head++
	}
	if u.head == len(u.entries) {
		u.entries, u.head = u.entries[:0], 0
	}
}

// each calls f for the deliveries from first to last, inclusive and with wrap-around, and removes
// those for which it returns true.
func (u *unsettled[T]) each(first, last uint32, f func(value T) (remove bool)) {
	var zero T
	for i := u.find(first); i < len(u.entries); i++ {
		e := u.entries[i]
		if e.id-first > last-first {
			return
		}
		if e.value != zero && f(e.value) {
			u.removeAt(i) // may remove entries from the end, never moves one
		}
	}
}

// all calls f for every delivery and removes those for which it returns true.
func (u *unsettled[T]) all(f func(value T) (remove bool)) {
	if u.live > 0 {
		first := u.entries[u.head].id
		u.each(first, first-1, f)
	}
}
