// SPDX-License-Identifier: Apache-2.0

package search

import "hash/maphash"

// seenIDsSize bounds each of two generations. Together they take about 5 MiB.
const seenIDsSize = 1 << 15

// SeenIDs records the identities at which message-ids were seen while pages were read for other
// messages, so that they need no search at their own deadlines. It is a hint: message-ids are
// hashed, they may repeat, and messages go.
type SeenIDs struct {
	seed   maphash.Seed
	recent map[uint64]seenID
	older  map[uint64]seenID // the generation before; dropped when recent is full
	used   bool
}

// seenID is where a message-id was seen last.
type seenID struct {
	Identity
	repeats bool // and at another message
}

// add records where id was seen last.
func (m *SeenIDs) add(id string, seen Identity) {
	if id == "" {
		return // says nothing
	}
	if !m.used {
		m.used, m.seed, m.recent = true, maphash.MakeSeed(), map[uint64]seenID{}
	}
	if len(m.recent) == seenIDsSize {
		m.older, m.recent = m.recent, make(map[uint64]seenID, seenIDsSize)
	}
	h, last := maphash.String(m.seed, id), seenID{Identity: seen}
	for _, before := range []seenID{m.recent[h], m.older[h]} {
		last.repeats = last.repeats || before.repeats || before.Number != 0 && before.Identity != seen
		if before.After(last.Identity) {
			last.Identity = before.Identity
		}
	}
	m.recent[h] = last
}

// Last returns where id was seen last; zero: it was not, or too long ago.
func (m *SeenIDs) Last(id string) Identity { return m.at(id).Identity }

// Only returns where id was seen, if it was at one message alone.
func (m *SeenIDs) Only(id string) Identity {
	if at := m.at(id); !at.repeats {
		return at.Identity
	}
	return Identity{}
}

func (m *SeenIDs) at(id string) seenID {
	if !m.used || id == "" {
		return seenID{}
	}
	h := maphash.String(m.seed, id)
	if n, ok := m.recent[h]; ok {
		return n
	}
	return m.older[h]
}
