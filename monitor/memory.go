// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"hash/maphash"
	"time"
)

// memorySize bounds what a memory holds, in messages. Two generations of it take about
// 4 MiB.
const memorySize = 1 << 15

// memory remembers at which sequence numbers message-ids were seen while a page was read
// for the sake of others, so that they need not be sought when their own deadlines come.
// What it says is a hint: ids are kept as hashes, may repeat, and messages go.
type memory struct {
	seed      maphash.Seed
	young     map[uint64]sighting
	old       map[uint64]sighting // the generation before; dropped when young is full
	remembers bool
}

// sighting is the message with the highest number among those with one id.
type sighting struct {
	number   int64
	enqueued int64 // Unix milliseconds
}

// at is when the message was enqueued.
func (s sighting) at() time.Time { return time.UnixMilli(s.enqueued) }

func (m *memory) add(id string, number int64, enqueued time.Time) {
	if id == "" {
		return // says nothing
	}
	if !m.remembers {
		m.remembers, m.seed, m.young = true, maphash.MakeSeed(), map[uint64]sighting{}
	}
	if len(m.young) == memorySize {
		m.old, m.young = m.young, make(map[uint64]sighting, memorySize)
	}
	h := maphash.String(m.seed, id)
	seen := sighting{number, enqueued.UnixMilli()}
	for _, before := range []sighting{m.young[h], m.old[h]} {
		if before.number > seen.number {
			seen = before
		}
	}
	m.young[h] = seen
}

// last is where id was seen, zero when it was not, or too long ago.
func (m *memory) last(id string) sighting {
	if !m.remembers || id == "" {
		return sighting{}
	}
	h := maphash.String(m.seed, id)
	if n, ok := m.young[h]; ok {
		return n
	}
	return m.old[h]
}
