// SPDX-License-Identifier: Apache-2.0

package monitor

import "hash/maphash"

// seenIDsSize bounds what a memory holds, in messages. Two generations of it take about
// 4 MiB.
const seenIDsSize = 1 << 15

// seenIDs remembers at which sequence numbers message-ids were seen while a page was read
// for the sake of others, so that they need not be sought when their own deadlines come.
// What it says is a hint: ids are kept as hashes, may repeat, and messages go.
type seenIDs struct {
	seed   maphash.Seed
	recent map[uint64]identity
	older  map[uint64]identity // the generation before; dropped when young is full
	used   bool
}

// add takes note of where id was seen. Of several messages with one id it is the latest.
func (m *seenIDs) add(id string, seen identity) {
	if id == "" {
		return // says nothing
	}
	if !m.used {
		m.used, m.seed, m.recent = true, maphash.MakeSeed(), map[uint64]identity{}
	}
	if len(m.recent) == seenIDsSize {
		m.older, m.recent = m.recent, make(map[uint64]identity, seenIDsSize)
	}
	h := maphash.String(m.seed, id)
	for _, before := range []identity{m.recent[h], m.older[h]} {
		if before.after(seen) {
			seen = before
		}
	}
	m.recent[h] = seen
}

// last is where id was seen, zero when it was not, or too long ago.
func (m *seenIDs) last(id string) identity {
	if !m.used || id == "" {
		return identity{}
	}
	h := maphash.String(m.seed, id)
	if n, ok := m.recent[h]; ok {
		return n
	}
	return m.older[h]
}
