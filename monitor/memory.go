// SPDX-License-Identifier: Apache-2.0

package monitor

import "hash/maphash"

// memorySize bounds what a memory holds, in messages. Two generations of it take about
// 4 MiB.
const memorySize = 1 << 15

// memory remembers at which sequence numbers message-ids were seen while a page was read
// for the sake of others, so that they need not be sought when their own deadlines come.
// What it says is a hint: ids are kept as hashes, may repeat, and messages go.
type memory struct {
	seed      maphash.Seed
	young     map[uint64]seat
	old       map[uint64]seat // the generation before; dropped when young is full
	remembers bool
}

// add takes note of where id was seen. Of several messages with one id it is the latest.
func (m *memory) add(id string, seen seat) {
	if id == "" {
		return // says nothing
	}
	if !m.remembers {
		m.remembers, m.seed, m.young = true, maphash.MakeSeed(), map[uint64]seat{}
	}
	if len(m.young) == memorySize {
		m.old, m.young = m.young, make(map[uint64]seat, memorySize)
	}
	h := maphash.String(m.seed, id)
	for _, before := range []seat{m.young[h], m.old[h]} {
		if before.behind(seen) {
			seen = before
		}
	}
	m.young[h] = seen
}

// last is where id was seen, zero when it was not, or too long ago.
func (m *memory) last(id string) seat {
	if !m.remembers || id == "" {
		return seat{}
	}
	h := maphash.String(m.seed, id)
	if n, ok := m.young[h]; ok {
		return n
	}
	return m.old[h]
}
