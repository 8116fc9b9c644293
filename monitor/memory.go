// SPDX-License-Identifier: Apache-2.0

package monitor

import "hash/maphash"

// memorySize bounds what a memory holds, in messages. Two generations of it take about
// 3 MiB.
const memorySize = 1 << 15

// memory remembers at which sequence numbers message-ids were seen while a page was read
// for the sake of others, so that they need not be sought when their own deadlines come.
// What it says is a hint: ids are kept as hashes, may repeat, and messages go.
type memory struct {
	seed      maphash.Seed
	young     map[uint64]int64
	old       map[uint64]int64 // the generation before; dropped when young is full
	remembers bool
}

func (m *memory) add(id string, number int64) {
	if id == "" {
		return // says nothing
	}
	if !m.remembers {
		m.remembers, m.seed, m.young = true, maphash.MakeSeed(), map[uint64]int64{}
	}
	if len(m.young) == memorySize {
		m.old, m.young = m.young, make(map[uint64]int64, memorySize)
	}
	h := maphash.String(m.seed, id)
	m.young[h] = max(number, m.young[h], m.old[h])
}

// hint is the highest number at which id was seen, 0 when it was not, or too long ago.
func (m *memory) hint(id string) int64 {
	if !m.remembers || id == "" {
		return 0
	}
	h := maphash.String(m.seed, id)
	if n, ok := m.young[h]; ok {
		return n
	}
	return m.old[h]
}
