// SPDX-License-Identifier: Apache-2.0

package search

import (
	"hash/maphash"
	"sync"
	"time"

	"overdue/internal/servicebus/link"
	"overdue/scheduler"
)

// seenIDsSize bounds each of two generations. Together they take about 7 MiB.
const seenIDsSize = 1 << 15

// SeenIDs records the identities at which message-ids were seen while pages were read for other
// messages, so that they need no search at their own deadlines. It is a hint: message-ids are
// hashed, they may repeat, and messages go. The methods are safe for concurrent use, since a nudge
// reads the dead letters beside the work queue.
type SeenIDs struct {
	mu     sync.Mutex
	seed   maphash.Seed
	recent map[uint64]seenID
	older  map[uint64]seenID // the generation before; dropped when recent is full
	used   bool
}

// seenID is where a message-id was seen last.
type seenID struct {
	Identity
	repeats bool  // and at another message
	waiting limit // of it, as it was on the work queue; zero: it was not there
}

// limit is what a message states of its deadline, and its session.
type limit struct {
	known    bool
	life     time.Duration
	deadline int64         // Unix milliseconds
	within   time.Duration // 0: none
	session  string
}

// limitOf returns the limit of m. One that is stated wrongly counts as none.
func limitOf(m *link.Message) limit {
	at, within, _ := scheduler.StatedDeadline(func(name string) any { return m.Properties[name] })
	return limit{true, m.TimeToLive, at.UnixMilli(), within, m.SessionID}
}

// add records where id was seen last, and its limit if that was on the work queue.
func (m *SeenIDs) add(id string, seen Identity, waiting limit) {
	if id == "" {
		return // says nothing
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.used {
		m.used, m.seed, m.recent, m.older = true, maphash.MakeSeed(), map[uint64]seenID{}, map[uint64]seenID{}
	}
	if len(m.recent) == seenIDsSize {
		m.older, m.recent = m.recent, m.older
		clear(m.recent)
	}
	h, last := maphash.String(m.seed, id), seenID{Identity: seen, waiting: waiting}
	before, ok := m.recent[h]
	if !ok {
		before = m.older[h]
	}
	last.repeats = before.repeats || before.Number != 0 && before.Identity != seen
	switch {
	case before.Identity == last.Identity:
		if !last.waiting.known {
			last.waiting = before.waiting
		}
	case before.After(last.Identity):
		last.Identity, last.waiting = before.Identity, before.waiting
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

// Waiting returns where id was seen on the work queue, if it was at one message alone, which had
// that limit.
func (m *SeenIDs) Waiting(id string, l limit) Identity {
	if at := m.at(id); at.waiting == l && !at.repeats {
		return at.Identity
	}
	return Identity{}
}

// Clear forgets all message-ids.
func (m *SeenIDs) Clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.recent, m.older, m.used = nil, nil, false
}

func (m *SeenIDs) at(id string) seenID {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.used || id == "" {
		return seenID{}
	}
	h := maphash.String(m.seed, id)
	if n, ok := m.recent[h]; ok {
		return n
	}
	return m.older[h]
}
