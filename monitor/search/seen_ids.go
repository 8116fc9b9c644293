// SPDX-License-Identifier: Apache-2.0

package search

import "hash/maphash"

// seenIDsSize bounds each of two generations. Together they take about 4 MiB.
const seenIDsSize = 1 << 15

// SeenIDs records the identities at which message-ids were seen while pages were read for other
// messages, so that they need no search at their own deadlines. It is a hint: message-ids are
// hashed, they may repeat, and messages go.
type SeenIDs struct {
	seed   maphash.Seed
	recent map[uint64]Identity
	older  map[uint64]Identity // the generation before; dropped when young is full
	used   bool
}

// add records where id was seen last.
func (m *SeenIDs) add(id string, seen Identity) {
	if id == "" {
		return // says nothing
	}
	if !m.used {
		m.used, m.seed, m.recent = true, maphash.MakeSeed(), map[uint64]Identity{}
	}
	if len(m.recent) == seenIDsSize {
		m.older, m.recent = m.recent, make(map[uint64]Identity, seenIDsSize)
	}
	h := maphash.String(m.seed, id)
	for _, before := range []Identity{m.recent[h], m.older[h]} {
		if before.After(seen) {
			seen = before
		}
	}
	m.recent[h] = seen
}

// Last returns where id was seen; zero: it was not, or too long ago.
func (m *SeenIDs) Last(id string) Identity {
	if !m.used || id == "" {
		return Identity{}
	}
	h := maphash.String(m.seed, id)
	if n, ok := m.recent[h]; ok {
		return n
	}
	return m.older[h]
}
