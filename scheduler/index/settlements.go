// SPDX-License-Identifier: Apache-2.0

package index

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
	"time"
)

// places is how many settlements are remembered, in 512 KiB: the monitor asks within a few seconds.
const places = 1 << 16

// Settlements are the messages that were settled last, by their identities: entity, sequence number
// and enqueued-time. A message takes the place of one whose number is lower by a multiple of places. It
// is safe for concurrent use and does not block.
type Settlements struct {
	marks [places]atomic.Uint64 // the lowest bit says that the settlement is confirmed
}

const confirmed = 1

// Begin notes that a consumer settles a message, which is off its queue or subscription at once.
func (s *Settlements) Begin(entity string, number int64, enqueued time.Time) {
	at, mark := placeOf(entity, number, enqueued)
	s.marks[at].Store(mark)
}

// Confirm notes that a message is off its queue or subscription.
func (s *Settlements) Confirm(entity string, number int64, enqueued time.Time) {
	at, mark := placeOf(entity, number, enqueued)
	s.marks[at].Store(mark | confirmed)
}

// Has reports whether a message is known to be settled, or else whether it may be.
func (s *Settlements) Has(entity string, number int64, enqueued time.Time) (settled, maybe bool) {
	at, mark := placeOf(entity, number, enqueued)
	found := s.marks[at].Load()
	return found == mark|confirmed, found == mark
}

// placeOf is where a message of an entity, whose name is spelled in any case, is noted, and what is
// written there. Numbers that follow each other have places that do.
func placeOf(entity string, number int64, enqueued time.Time) (at int, mark uint64) {
	name := maphash.String(seeds[0], strings.ToLower(entity))
	mark = maphash.Comparable(seeds[1], [3]uint64{name, uint64(number), uint64(enqueued.UnixMilli())})
	return int((name + uint64(number)) % places), mark &^ confirmed
}
