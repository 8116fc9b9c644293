// SPDX-License-Identifier: Apache-2.0

package index

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
	"time"
)

// Settlements are the messages that were settled last, by their identities: entity, sequence number
// and enqueued-time: the monitor asks within a few seconds. A message takes the place of one whose
// number is lower by a multiple of the places. It is safe for concurrent use and does not block.
type Settlements struct {
	marks [2 * References]atomic.Uint64 // the lowest bit says that the settlement is confirmed
}

// Begin notes that a consumer settles a message, which is off its queue or subscription at once.
func (s *Settlements) Begin(entity string, number int64, enqueued time.Time) {
	place, mark := s.placeOf(entity, number, enqueued)
	place.Store(mark)
}

// Confirm notes that a message is off its queue or subscription.
func (s *Settlements) Confirm(entity string, number int64, enqueued time.Time) {
	place, mark := s.placeOf(entity, number, enqueued)
	place.Store(mark | 1)
}

// Has reports whether a message is known to be settled, or else whether it may be.
func (s *Settlements) Has(entity string, number int64, enqueued time.Time) (settled, maybe bool) {
	place, mark := s.placeOf(entity, number, enqueued)
	found := place.Load()
	return found == mark|1, found == mark
}

// placeOf is where a message of an entity, whose name is spelled in any case, is noted, and what is
// written there. Numbers that follow each other have places that do.
func (s *Settlements) placeOf(entity string, number int64, enqueued time.Time) (place *atomic.Uint64, mark uint64) {
	name := maphash.String(seeds[0], strings.ToLower(entity))
	mark = maphash.Comparable(seeds[1], [3]uint64{name, uint64(number), uint64(enqueued.UnixMilli())})
	return &s.marks[(name+uint64(number))%uint64(len(s.marks))], mark &^ 1
}
